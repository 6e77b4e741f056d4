/* Prints the request's variables and its body. With ?struct it asks for struct mode, with ?ask it
   shows what the server answers to a callout that it does not know. */
#include <stdio.h>
#include <string.h>

#include "cgiplus.h"

int main(void)
{
    while (cgiplus_next()) {
        const char *query = cgiplus_variable("QUERY_STRING");
        char part[8192], answer[256];
        char **variable;
        size_t count;
        printf("Content-Type: text/plain\n\n");
        if (query != NULL && strcmp(query, "struct") == 0)
            cgiplus_use_struct_mode();
        if (query != NULL && strcmp(query, "ask") == 0
            && cgiplus_callout("WHAT: is this?", answer, sizeof answer) == 0)
            printf("answer=%s\n", answer);
        for (variable = cgiplus_variables(); *variable != NULL; variable++)
            printf("%s\n", *variable);
        printf("\n");
        while ((count = cgiplus_read(part, sizeof part)) > 0)
            fwrite(part, 1, count, stdout);
    }
    return 0;
}
