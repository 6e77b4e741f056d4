/* CGIplus for C: one process handles many requests. Under plain CGI the same program handles one.

       while (cgiplus_next())
           printf("Content-Type: text/plain\n\nhello\n");

   The response is the output to stdout by stdio. */
#ifndef CGIPLUS_H
#define CGIPLUS_H

#include <stddef.h>

/* Ends the response to the previous request, and waits for the next one. 0 if there is none. */
int cgiplus_next(void);

/* Whether the process may handle more than one request. */
int cgiplus_is_used(void);

/* The value of a request's variable; NULL if there is none. It is valid until the next request. */
const char *cgiplus_variable(const char *name);

/* All variables of the request, NAME=value each, and NULL at the end. */
char **cgiplus_variables(void);

/* Reads up to `size` bytes of the request's body; 0 at its end. */
size_t cgiplus_read(void *buffer, size_t size);

/* Sends a callout to the server. Stores the response, without its line end, in `response`, truncated
   to `size` bytes with the NUL; a text that begins with ! or # has none. 0, or -1 on failure. */
int cgiplus_callout(const char *text, char *response, size_t size);

/* Enables struct mode from the next request on: variables have lengths, so that they can contain any
   byte. Call it while a request is handled. */
void cgiplus_use_struct_mode(void);

#endif
