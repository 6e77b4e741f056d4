/* A CGI program, which is compiled for the system and as a component. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *variable(const char *name) {
    const char *value = getenv(name);
    return value ? value : "";
}

int main(void) {
    static char body[1 << 20];
    size_t length = fread(body, 1, sizeof body, stdin);
    unsigned sum = 0;
    for (size_t at = 0; at < length; at++)
        sum = sum * 31 + (unsigned char)body[at];
    if (!strcmp(variable("QUERY_STRING"), "status"))
        printf("Status: 418 Teapot\n");
    printf("Content-Type: text/plain\nX-Made: in C\n\n");
    printf("%s %s?%s\n", variable("REQUEST_METHOD"), variable("PATH_INFO"), variable("QUERY_STRING"));
    printf("%s of %s as %s\n", variable("GATEWAY_INTERFACE"), variable("HTTP_X_FROM"), variable("CONTENT_TYPE"));
    printf("%s bytes, %zu read, sum %u\n", variable("CONTENT_LENGTH"), length, sum);
    return 0;
}
