/* See cgiplus.h. One thread at a time may use it. */
#define _POSIX_C_SOURCE 200809L
#include "cgiplus.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

static const char *end_mark;
static int requests;
static unsigned long long left;
/* What has come of the stream of variables: those of the request, and from `next` on what has not been looked at. It
   stays where it is until the next request. */
static int stream = -1;
static char *received;
static size_t received_size, used, next;
/* The start of each variable. */
static char **list;
static size_t list_size;

int cgiplus_is_used(void)
{
    static int is_used = -1;
    if (is_used < 0) {
        const char *mark = getenv("CGIPLUSEOF");
        is_used = mark != NULL && *mark != '\0';
    }
    return is_used;
}

static int grow(void **memory, size_t *size, size_t wanted, size_t item)
{
    void *larger;
    size_t count = *size == 0 ? 256 : *size;
    if (wanted <= *size)
        return 1;
    while (count < wanted)
        count *= 2;
    larger = realloc(*memory, count * item);
    if (larger == NULL)
        return 0;
    *memory = larger;
    *size = count;
    return 1;
}

static int set(size_t at, char *variable)
{
    if (!grow((void **)&list, &list_size, at + 1, sizeof *list))
        return 0;
    list[at] = variable;
    return 1;
}

static ssize_t read_some(void *to, size_t size)
{
    ssize_t count;
    do
        count = read(stream, to, size);
    while (count < 0 && errno == EINTR);
    return count;
}

static int read_more(void)
{
    ssize_t count;
    if (!grow((void **)&received, &received_size, used + 4096, 1))
        return 0;
    count = read_some(received + used, received_size - used);
    if (count <= 0)
        return 0;
    used += (size_t)count;
    return 1;
}

/* The end of the line that begins at `at`. Waits for missing input. */
static int find_end(size_t at, size_t *end)
{
    size_t known = at;
    for (;;) {
        const char *found = known < used ? memchr(received + known, '\n', used - known) : NULL;
        if (found != NULL) {
            *end = (size_t)(found - received);
            return 1;
        }
        known = used;
        if (!read_more())
            return 0;
    }
}

/* Reads lines up to an empty one. Their positions are final when all have been read. */
static int read_records(void)
{
    size_t at = next, end, count = 0;
    for (; find_end(at, &end); at = end + 1) {
        if (end != at)
            continue;
        for (at = next; at < end; at += strlen(received + at) + 1) {
            char *stop = memchr(received + at, '\n', used - at);
            *stop = '\0';
            if (!set(count++, received + at))
                return 0;
        }
        next = end + 1;
        return set(count, NULL);
    }
    return 0;
}

/* Reads `size` bytes: for each variable a length of two bytes, little-endian, and that number of bytes. */
static int read_structs(size_t size)
{
    size_t at = next, end, count = 0;
    while (used - next < size)
        if (!read_more())
            return 0;
    end = next += size;
    while (at + 2 <= end) {
        size_t length = (unsigned char)received[at] | (size_t)(unsigned char)received[at + 1] << 8;
        at += 2;
        if (length == 0)
            return set(count, NULL);
        if (length > end - at || received[at + length - 1] != '\0' || !set(count++, received + at))
            return 0;
        at += length;
    }
    return 0;
}

/* Reads up to the variables of a request, and these. */
static int read_request(void)
{
    size_t end;
    if (next > 0)
        memmove(received, received + next, used - next);
    used -= next;
    next = 0;
    while (find_end(next, &end)) {
        const char *line = received + next;
        size_t length = end - next;
        next = end + 1;
        if (length == 1 && *line == '!')
            return read_records();
        if (length > 2 && line[0] == '!' && line[1] == '!')
            return read_structs(strtoul(line + 2, NULL, 10));
    }
    return 0;
}

static void find_length(void)
{
    const char *length = cgiplus_variable("CONTENT_LENGTH");
    left = length == NULL ? 0 : strtoull(length, NULL, 10);
}

static int open_stream(void)
{
    const char *path = getenv("CGIPLUSIN");
    end_mark = getenv("CGIPLUSEOF");
    stream = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    /* One write sends 64 KB with the bytes before and after them. */
    return stream >= 0 && setvbuf(stdout, NULL, _IOFBF, 81920) == 0;
}

int cgiplus_next(void)
{
    char rest[4096];
    if (!cgiplus_is_used()) {
        if (requests++ == 0) {
            find_length();
            return 1;
        }
        fflush(stdout);
        return 0;
    }
    if (requests++ == 0) {
        if (!open_stream())
            return 0;
    } else {
        while (cgiplus_read(rest, sizeof rest) > 0)
            continue;
        if (fputs(end_mark, stdout) == EOF || fflush(stdout) == EOF)
            return 0;
    }
    if (!read_request())
        return 0;
    find_length();
    return 1;
}

char **cgiplus_variables(void)
{
    return cgiplus_is_used() ? list : environ;
}

const char *cgiplus_variable(const char *name)
{
    size_t length = strlen(name);
    char **at = cgiplus_variables();
    for (; at != NULL && *at != NULL; at++)
        if (**at == *name && strncmp(*at, name, length) == 0 && (*at)[length] == '=')
            return *at + length + 1;
    return NULL;
}

size_t cgiplus_read(void *buffer, size_t size)
{
    size_t count = size < left ? size : (size_t)left;
    if (count == 0)
        return 0;
    size = fread(buffer, 1, count, stdin);
    left = size < count ? 0 : left - size;
    return size;
}

/* The next byte of the response to a callout. The variables keep their positions. */
static int next_byte(void)
{
    unsigned char byte;
    if (next < used)
        return (unsigned char)received[next++];
    return read_some(&byte, 1) == 1 ? byte : EOF;
}

int cgiplus_callout(const char *text, char *response, size_t size)
{
    const char *begin = getenv("CGIPLUSESC"), *end = getenv("CGIPLUSEOT");
    size_t length = 0;
    int c;
    if (begin == NULL || end == NULL || stream < 0)
        return -1;
    if (printf("%s\n%s\n%s", begin, text, end) < 0 || fflush(stdout) == EOF)
        return -1;
    if (*text == '!' || *text == '#')
        return 0;
    while ((c = next_byte()) != EOF && c != '\n')
        if (length + 1 < size)
            response[length++] = (char)c;
    if (size > 0)
        response[length] = '\0';
    return c == EOF ? -1 : 0;
}

void cgiplus_use_struct_mode(void)
{
    if (cgiplus_is_used() && getenv("CGIPLUS_VAR_RECORD") == NULL)
        cgiplus_callout("!CGIPLUS: struct", NULL, 0);
}
