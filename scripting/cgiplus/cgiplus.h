/* CGIplus for C: one process answers many requests. Under plain CGI the same program answers one.

       while (cgiplus_next())
           printf("Content-Type: text/plain\n\nhello\n");

   The answer is what is written to stdout by stdio. */
#ifndef CGIPLUS_H
#define CGIPLUS_H

#include <stddef.h>

/* Ends the answer to the request before, and waits for the next. 0 when there is none. */
int cgiplus_next(void);

/* Whether the process may answer more than one request. */
int cgiplus_is_used(void);

/* The value of a request's variable; NULL when there is none. It holds until the next request. */
const char *cgiplus_variable(const char *name);

/* All variables of the request, NAME=value each, and NULL at the end. */
char **cgiplus_variables(void);

/* Reads up to `size` bytes of the request's body; 0 at its end. */
size_t cgiplus_read(void *buffer, size_t size);

/* Says something to the server. Its answer, without the end of its line, goes to `answer`, cut to
   `size` bytes with the NUL; a text that begins with ! or # gets none. 0, or -1 when it fails. */
int cgiplus_callout(const char *text, char *answer, size_t size);

/* Has variables come with their lengths from the next request on, so that they hold any byte. To
   be called while a request is answered. */
void cgiplus_use_struct_mode(void);

#endif
