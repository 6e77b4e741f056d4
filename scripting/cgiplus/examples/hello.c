/* Says hello, and how often it has done so. cc -I.. -o hello hello.c ../cgiplus.c */
#include <stdio.h>

#include "cgiplus.h"

int main(void)
{
    unsigned long count = 0;
    while (cgiplus_next())
        printf("Content-Type: text/plain\n\nhello %lu\n", ++count);
    return 0;
}
