#!/bin/sh
# A CGI program: its output is the response. It prints variables of the request.
echo "Content-Type: text/plain; charset=utf-8"
echo
echo "The variables of the request in process $$:"
echo
env | grep -E '^(REQUEST_METHOD|SCRIPT_NAME|PATH_INFO|QUERY_STRING|CONTENT_LENGTH|REMOTE_ADDR|SERVER_PROTOCOL)=' | sort
