/* Prints the request's variables and its body. With ?struct it enables struct mode, with ?callout it
   shows the server's response to an unknown callout. */
#include <stdio.h>
#include <string.h>

#include "cgiplus.h"

int main(void)
{
    while (cgiplus_next()) {
        const char *query = cgiplus_variable("QUERY_STRING");
        char part[8192], response[256];
        char **variable;
        size_t count;
        printf("Content-Type: text/plain\n\n");
        if (query != NULL && strcmp(query, "struct") == 0)
            cgiplus_use_struct_mode();
        if (query != NULL && strcmp(query, "callout") == 0
            && cgiplus_callout("WHAT: is this?", response, sizeof response) == 0)
            printf("response=%s\n", response);
        for (variable = cgiplus_variables(); *variable != NULL; variable++)
            printf("%s\n", *variable);
        printf("\n");
        while ((count = cgiplus_read(part, sizeof part)) > 0)
            fwrite(part, 1, count, stdout);
    }
    return 0;
}
