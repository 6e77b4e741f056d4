#!/bin/sh
# A CGI program: what it writes is the answer. It tells what it was told of the request.
echo "Content-Type: text/plain; charset=utf-8"
echo
echo "A program with the number $$ tells what it was told:"
echo
env | grep -E '^(REQUEST_METHOD|SCRIPT_NAME|PATH_INFO|QUERY_STRING|CONTENT_LENGTH|REMOTE_ADDR|SERVER_PROTOCOL)=' | sort
