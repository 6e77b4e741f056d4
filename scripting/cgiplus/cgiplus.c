/* See cgiplus.h. One thread at a time may use it. */
#define _POSIX_C_SOURCE 200809L
#include "cgiplus.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern char **environ;

static FILE *stream;
static const char *end_mark;
static int requests;
static unsigned long long left;
/* The variables of the request, each behind its length, and where each begins. */
static char *block;
static size_t block_size;
static char **list;
static size_t list_size;

int cgiplus_is_used(void)
{
    const char *mark = getenv("CGIPLUSEOF");
    return mark != NULL && *mark != '\0';
}

static int grow(void **memory, size_t *size, size_t wanted, size_t item)
{
    void *larger;
    size_t next = *size == 0 ? 256 : *size;
    if (wanted <= *size)
        return 1;
    while (next < wanted)
        next *= 2;
    larger = realloc(*memory, next * item);
    if (larger == NULL)
        return 0;
    *memory = larger;
    *size = next;
    return 1;
}

static int set(size_t at, char *variable)
{
    if (!grow((void **)&list, &list_size, at + 1, sizeof *list))
        return 0;
    list[at] = variable;
    return 1;
}

/* Lines up to an empty one. Where they begin is known once the block moves no more. */
static int read_records(void)
{
    size_t used = 0, start = 0, count = 0, at;
    for (;;) {
        if (!grow((void **)&block, &block_size, used + 2, 1)
            || fgets(block + used, (int)(block_size - used), stream) == NULL)
            return 0;
        used += strlen(block + used);
        if (used == start || block[used - 1] != '\n')
            continue;
        block[used - 1] = '\0';
        if (used == start + 1)
            break;
        start = used;
        count++;
    }
    for (at = used = 0; at < count; at++) {
        if (!set(at, block + used))
            return 0;
        used += strlen(block + used) + 1;
    }
    return set(count, NULL);
}

/* `size` bytes: lengths of two bytes, the lower one first, and so many bytes each. */
static int read_structs(size_t size)
{
    size_t at = 0, count = 0;
    if (!grow((void **)&block, &block_size, size, 1) || fread(block, 1, size, stream) != size)
        return 0;
    while (at + 2 <= size) {
        size_t length = (unsigned char)block[at] | (size_t)(unsigned char)block[at + 1] << 8;
        at += 2;
        if (length == 0)
            return set(count, NULL);
        if (length > size - at || block[at + length - 1] != '\0' || !set(count++, block + at))
            return 0;
        at += length;
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
    stream = path == NULL ? NULL : fopen(path, "rb");
    /* 64 KB leave in one write with what stands before and after them. */
    return stream != NULL && setvbuf(stdout, NULL, _IOFBF, 81920) == 0;
}

int cgiplus_next(void)
{
    char line[64], rest[4096];
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
    while (fgets(line, sizeof line, stream) != NULL) {
        int whole = 0;
        if (strcmp(line, "!\n") == 0)
            whole = read_records();
        else if (strncmp(line, "!!", 2) == 0)
            whole = read_structs(strtoul(line + 2, NULL, 10));
        else
            continue;
        find_length();
        return whole;
    }
    return 0;
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
        if (strncmp(*at, name, length) == 0 && (*at)[length] == '=')
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

int cgiplus_callout(const char *text, char *answer, size_t size)
{
    const char *begin = getenv("CGIPLUSESC"), *end = getenv("CGIPLUSEOT");
    size_t used = 0;
    int c;
    if (begin == NULL || end == NULL || stream == NULL)
        return -1;
    if (printf("%s\n%s\n%s", begin, text, end) < 0 || fflush(stdout) == EOF)
        return -1;
    if (*text == '!' || *text == '#')
        return 0;
    while ((c = getc_unlocked(stream)) != EOF && c != '\n')
        if (used + 1 < size)
            answer[used++] = (char)c;
    if (size > 0)
        answer[used] = '\0';
    return c == EOF ? -1 : 0;
}

void cgiplus_use_struct_mode(void)
{
    if (cgiplus_is_used() && getenv("CGIPLUS_VAR_RECORD") == NULL)
        cgiplus_callout("!CGIPLUS: struct", NULL, 0);
}
