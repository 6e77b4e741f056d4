/* The fast path of host.py: handles most requests to a WSGI application without Python code.
 *
 * It handles requests without a body, whose application calls start_response once, with strings, and
 * returns a list or tuple of one bytes object. For any other request it creates host.py's Response,
 * which continues: rare cases are implemented once, in Python. host.py loads this library if it can,
 * and works without it otherwise.
 *
 * One build works with every CPython from 3.9 on. It does not need Python's headers, which not every machine
 * has: the functions of Python are declared here, and all are in the stable ABI (PyUnicode_AsUTF8AndSize
 * since 3.10, but 3.9 has the same). Builds without the GIL have another ABI; host.py does not load it there. */

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>

#define EXPORT __attribute__((visibility("default")))

/* ---- Python ---------------------------------------------------------------------------------- */

typedef ssize_t Py_ssize_t;
typedef struct _typeobject PyTypeObject;
typedef struct {
    Py_ssize_t ob_refcnt;
    PyTypeObject *ob_type;
} PyObject;
typedef PyObject *PyCFunction(PyObject *, PyObject *);
typedef struct {
    const char *name;
    PyCFunction *function;
    int flags;
    const char *doc;
} PyMethodDef;
typedef struct {
    PyObject base;
    PyObject *(*init)(void);
    Py_ssize_t index;
    PyObject *copy;
    const char *name, *doc;
    Py_ssize_t size;
    PyMethodDef *methods;
    void *slots, *traverse, *clear, *free;
} PyModuleDef;
typedef struct {
    int slot;
    void *function;
} PyType_Slot;
typedef struct {
    const char *name;
    int size, item_size;
    unsigned int flags;
    PyType_Slot *slots;
} PyType_Spec;

enum {
    ABI = 3,
    METH_VARARGS = 1,
    METH_KEYWORDS = 2,
    METH_O = 8,
    TP_DEFAULT = 1 << 18,
    TP_CALL = 50,
    TP_DEALLOC = 52,
    TP_NEW = 65,
};

extern PyTypeObject PyBytes_Type, PyList_Type, PyTuple_Type, PyUnicode_Type;
extern PyObject _Py_NoneStruct, _Py_TrueStruct;
extern PyObject *PyExc_TypeError, *PyExc_ValueError;

int PyArg_ParseTuple(PyObject *, const char *, ...);
char *PyBytes_AsString(PyObject *);
int PyBytes_AsStringAndSize(PyObject *, char **, Py_ssize_t *);
PyObject *PyBytes_FromStringAndSize(const char *, Py_ssize_t);
Py_ssize_t PyBytes_Size(PyObject *);
PyObject *PyCFunction_NewEx(PyMethodDef *, PyObject *, PyObject *);
PyObject *PyDict_Copy(PyObject *);
PyObject *PyDict_GetItemWithError(PyObject *, PyObject *);
int PyDict_SetItem(PyObject *, PyObject *, PyObject *);
void PyErr_Clear(void);
void PyErr_Fetch(PyObject **, PyObject **, PyObject **);
PyObject *PyErr_NoMemory(void);
PyObject *PyErr_Occurred(void);
void PyErr_Restore(PyObject *, PyObject *, PyObject *);
void PyErr_SetString(PyObject *, const char *);
int PyList_Append(PyObject *, PyObject *);
PyObject *PyList_GetItem(PyObject *, Py_ssize_t);
Py_ssize_t PyList_Size(PyObject *);
PyObject *PyLong_FromSsize_t(Py_ssize_t);
PyObject *PyLong_FromUnsignedLong(unsigned long);
PyObject *PyModule_Create2(PyModuleDef *, int);
PyObject *PyObject_Call(PyObject *, PyObject *, PyObject *);
PyObject *PyObject_CallFunctionObjArgs(PyObject *, ...);
PyObject *PyObject_CallMethod(PyObject *, const char *, const char *, ...);
PyObject *PyObject_CallObject(PyObject *, PyObject *);
void PyObject_Free(void *);
PyObject *PyObject_GetAttrString(PyObject *, const char *);
PyObject *PyObject_Init(PyObject *, PyTypeObject *);
void *PyObject_Malloc(size_t);
PyObject *PyTuple_GetItem(PyObject *, Py_ssize_t);
Py_ssize_t PyTuple_Size(PyObject *);
PyObject *PyType_FromSpec(PyType_Spec *);
const char *PyUnicode_AsUTF8AndSize(PyObject *, Py_ssize_t *);
PyObject *PyUnicode_DecodeLatin1(const char *, Py_ssize_t, const char *);
PyObject *PyUnicode_FromString(const char *);
Py_ssize_t PyUnicode_GetLength(PyObject *);
void Py_DecRef(PyObject *);
void Py_IncRef(PyObject *);

/* ---- Frames ---------------------------------------------------------------------------------- */

enum {
    HEADER = 9,        /* length, number, kind */
    LENGTH = 4,        /* of the first part */
    REQUEST = 1,
    WHOLE = 3,
    STEP = 64 * 1024,  /* longer bodies are sent in parts */
    HEAD = 4096,       /* host.py formats longer heads */
};

/* Objects that host.py passes at the start. */
static PyObject *application, *parsed, *parse_common, *Response, *BytesIO, *locked, *release;
static PyObject *input_name;

/* The first part of the last request, and its parsed form of host.py: the environment, with room for
 * the values of the second part, and the names of these. */
static struct {
    PyObject *part, *entry;
} cached;

static uint32_t number_at(const char *at)
{
    const unsigned char *bytes = (const unsigned char *)at;
    return bytes[0] | bytes[1] << 8 | bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

static void put_number(char *at, uint32_t number)
{
    for (int i = 0; i < 4; i++)
        at[i] = (char)(number >> 8 * i);
}

/* The length of the frame at `at`; 0 if it is incomplete. */
static Py_ssize_t frame_at(const char *at, const char *end)
{
    if (end - at < HEADER || (size_t)(end - at - HEADER) < number_at(at))
        return 0;
    return HEADER + (Py_ssize_t)number_at(at);
}

/* The end of the requests without bodies that begin at `at`. */
static PyObject *requests_end(PyObject *module, PyObject *arguments)
{
    PyObject *data;
    Py_ssize_t at, size, length;
    char *bytes;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "On", &data, &at) || PyBytes_AsStringAndSize(data, &bytes, &size))
        return NULL;
    if (at < 0 || at > size) {
        PyErr_SetString(PyExc_ValueError, "no place in these bytes");
        return NULL;
    }
    while ((length = frame_at(bytes + at, bytes + size)) && bytes[at + 8] == REQUEST)
        at += length;
    return PyLong_FromSsize_t(at);
}

/* ---- A response ------------------------------------------------------------------------------ */

/* The start_response of one request. */
struct start {
    PyObject object;
    PyObject *connection;
    uint32_t number;
    PyObject *head;       /* after the call */
    PyObject *response;     /* host.py's Response, once it is needed; then it sends everything */
    PyObject *result;     /* of the application, for that Response to continue with, */
    PyObject *error[3];   /* or the exception that it raised */
};

static PyTypeObject *start_type;

static PyObject *new_start(PyObject *connection, uint32_t number)
{
    struct start *start = PyObject_Malloc(sizeof *start);
    if (!start)
        return PyErr_NoMemory();
    memset(start, 0, sizeof *start);
    Py_IncRef(connection);
    start->connection = connection;
    start->number = number;
    return PyObject_Init(&start->object, start_type);
}

static void free_start(PyObject *self)
{
    struct start *start = (struct start *)self;
    PyTypeObject *type = self->ob_type;
    Py_DecRef(start->connection);
    Py_DecRef(start->head);
    Py_DecRef(start->response);
    Py_DecRef(start->result);
    for (int i = 0; i < 3; i++)
        Py_DecRef(start->error[i]);
    PyObject_Free(self);
    Py_DecRef((PyObject *)type);
}

static PyObject *refuse_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    (void)type, (void)arguments, (void)keywords;
    PyErr_SetString(PyExc_TypeError, "the server alone creates objects of this type");
    return NULL;
}

/* host.py's Response, with the state of `start`. */
static PyObject *response_of(struct start *start)
{
    if (!start->response) {
        PyObject *head = start->head ? start->head : &_Py_NoneStruct;
        PyObject *number = PyLong_FromUnsignedLong(start->number), *response = NULL;
        if (number)
            response = PyObject_CallFunctionObjArgs(Response, start->connection, number, &_Py_NoneStruct,
                                                  head, NULL);
        Py_DecRef(number);
        if (!response)
            return NULL;
        /* Another thread of the application may have been first. */
        if (start->response)
            Py_DecRef(response);
        else
            start->response = response;
    }
    return start->response;
}

static PyObject *leave_to_response(PyObject *self, const char *name, PyObject *arguments, PyObject *keywords)
{
    PyObject *response = response_of((struct start *)self);
    PyObject *method = response ? PyObject_GetAttrString(response, name) : NULL;
    if (!method)
        return NULL;
    PyObject *result = PyObject_Call(method, arguments, keywords);
    Py_DecRef(method);
    return result;
}

struct text {
    char bytes[HEAD];
    size_t length;
};

static int add(struct text *text, const char *bytes, size_t length)
{
    if (length > sizeof text->bytes - text->length)
        return 0;
    memcpy(text->bytes + text->length, bytes, length);
    text->length += length;
    return 1;
}

/* Adds a string unchanged. False if it is no string, or not valid in a head. */
static int add_text(struct text *text, PyObject *object)
{
    Py_ssize_t length;
    if (object->ob_type != &PyUnicode_Type)
        return 0;
    const char *bytes = PyUnicode_AsUTF8AndSize(object, &length);
    if (!bytes) {
        PyErr_Clear();
        return 0;
    }
    /* With as many bytes as characters it is ASCII, and so equal in ISO 8859-1. */
    return PyUnicode_GetLength(object) == length && !memchr(bytes, '\n', (size_t)length)
        && add(text, bytes, (size_t)length);
}

/* The bytes of a head; NULL, and no error, if host.py has to format it, or to report an error. */
static PyObject *head_of(PyObject *status, PyObject *headers)
{
    static struct text text;
    if (headers->ob_type != &PyList_Type)
        return NULL;
    text.length = 0;
    if (!add(&text, "Status: ", 8) || !add_text(&text, status) || !add(&text, "\r\n", 2))
        return NULL;
    Py_ssize_t count = PyList_Size(headers);
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *pair = PyList_GetItem(headers, i);
        if (pair->ob_type != &PyTuple_Type || PyTuple_Size(pair) != 2)
            return NULL;
        if (!add_text(&text, PyTuple_GetItem(pair, 0)) || !add(&text, ": ", 2)
            || !add_text(&text, PyTuple_GetItem(pair, 1)) || !add(&text, "\r\n", 2))
            return NULL;
    }
    if (!add(&text, "\r\n", 2))
        return NULL;
    PyObject *head = PyBytes_FromStringAndSize(text.bytes, (Py_ssize_t)text.length);
    if (!head)
        PyErr_Clear();
    return head;
}

static PyObject *write_part(PyObject *self, PyObject *arguments, PyObject *keywords)
{
    return leave_to_response(self, "write", arguments, keywords);
}

static PyMethodDef write_method = {
    "write", (PyCFunction *)(void *)write_part, METH_VARARGS | METH_KEYWORDS, NULL};

/* Status and headers, and no exc_info, which some middleware passes as None. */
static int are_plain(PyObject *arguments)
{
    Py_ssize_t count = PyTuple_Size(arguments);
    return count == 2 || (count == 3 && PyTuple_GetItem(arguments, 2) == &_Py_NoneStruct);
}

static PyObject *call_start(PyObject *self, PyObject *arguments, PyObject *keywords)
{
    struct start *start = (struct start *)self;
    if (!start->response && !start->head && !keywords && are_plain(arguments)) {
        start->head = head_of(PyTuple_GetItem(arguments, 0), PyTuple_GetItem(arguments, 1));
        if (start->head)
            return PyCFunction_NewEx(&write_method, self, NULL);
    }
    return leave_to_response(self, "start", arguments, keywords);
}

/* Replaces the application: returns its result, or raises its exception. */
static PyObject *take_outcome(PyObject *self, PyObject *arguments)
{
    struct start *start = (struct start *)self;
    PyObject *result = start->result, **error = start->error;
    (void)arguments;
    start->result = NULL;
    if (!result) {
        PyErr_Restore(error[0], error[1], error[2]);
        error[0] = error[1] = error[2] = NULL;
    }
    return result;
}

static PyMethodDef outcome_method = {"application", take_outcome, METH_VARARGS, NULL};

/* Makes host.py continue with the result of the application, or with its exception if that is NULL. */
static int leave_outcome(PyObject *self, PyObject *result)
{
    struct start *start = (struct start *)self;
    PyObject *done = NULL;
    if (result) {
        Py_IncRef(result);
        start->result = result;
    } else {
        PyErr_Fetch(&start->error[0], &start->error[1], &start->error[2]);
    }
    PyObject *outcome = PyCFunction_NewEx(&outcome_method, self, NULL);
    if (outcome && response_of(start))
        done = PyObject_CallMethod(start->response, "run", "OO", outcome, &_Py_NoneStruct);
    Py_DecRef(outcome);
    Py_DecRef(done);
    return done ? 0 : -1;
}

/* The only part of a complete body; else NULL. */
static PyObject *body_of(PyObject *result)
{
    PyObject *body = NULL;
    if (result->ob_type == &PyList_Type && PyList_Size(result) == 1)
        body = PyList_GetItem(result, 0);
    else if (result->ob_type == &PyTuple_Type && PyTuple_Size(result) == 1)
        body = PyTuple_GetItem(result, 0);
    return body && body->ob_type == &PyBytes_Type && PyBytes_Size(body) <= STEP ? body : NULL;
}

static int send_whole(struct start *start, PyObject *body, PyObject *output)
{
    size_t head_length = (size_t)PyBytes_Size(start->head), length = (size_t)PyBytes_Size(body);
    PyObject *frame = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(HEADER + head_length + length));
    if (!frame)
        return -1;
    char *at = PyBytes_AsString(frame);
    put_number(at, (uint32_t)(head_length + length));
    put_number(at + 4, start->number);
    at[8] = WHOLE;
    memcpy(at + HEADER, PyBytes_AsString(start->head), head_length);
    memcpy(at + HEADER + head_length, PyBytes_AsString(body), length);
    int failed = PyList_Append(output, frame);
    Py_DecRef(frame);
    return failed;
}

/* Calls the application for one request. */
static int handle_one(PyObject *connection, PyObject *output, uint32_t number, PyObject *environ)
{
    PyObject *self = new_start(connection, number);
    if (!self)
        return -1;
    struct start *start = (struct start *)self;
    PyObject *result = PyObject_CallFunctionObjArgs(application, environ, self, NULL);
    PyObject *body = result && start->head && !start->response ? body_of(result) : NULL;
    int failed = body ? send_whole(start, body, output) : leave_outcome(self, result);
    Py_DecRef(result);
    Py_DecRef(self);
    return failed;
}

/* ---- A request ------------------------------------------------------------------------------- */

/* Caches `part`, the first part of a request. */
static int cache(const char *part, Py_ssize_t length)
{
    PyObject *bytes = PyBytes_FromStringAndSize(part, length);
    if (!bytes)
        return -1;
    PyObject *entry = PyDict_GetItemWithError(parsed, bytes);
    if (entry)
        Py_IncRef(entry);
    else if (!PyErr_Occurred())
        entry = PyObject_CallFunctionObjArgs(parse_common, bytes, NULL);
    if (!entry) {
        Py_DecRef(bytes);
        return -1;
    }
    Py_DecRef(cached.part);
    Py_DecRef(cached.entry);
    cached.part = bytes;
    cached.entry = entry;
    return 0;
}

static int is_cached(const char *at, Py_ssize_t length)
{
    return cached.part && PyBytes_Size(cached.part) == length
        && memcmp(PyBytes_AsString(cached.part), at, (size_t)length) == 0;
}

/* Sets the variables of `names` to the values of the second part. */
static int set_values(PyObject *environ, PyObject *names, const char *at, const char *end)
{
    Py_ssize_t count = PyList_Size(names);
    for (Py_ssize_t i = 0; i < count; i++) {
        const char *stop = memchr(at, 0, (size_t)(end - at));
        if (!stop)
            stop = end;
        PyObject *value = PyUnicode_DecodeLatin1(at, stop - at, NULL);
        int failed = !value || PyDict_SetItem(environ, PyList_GetItem(names, i), value);
        Py_DecRef(value);
        if (failed)
            return -1;
        at = stop < end ? stop + 1 : end;
    }
    return 0;
}

static PyObject *environ_of(const char *at, const char *end)
{
    if (end - at < LENGTH || (size_t)(end - at - LENGTH) < number_at(at)) {
        PyErr_SetString(PyExc_ValueError, "a request ends within its first part");
        return NULL;
    }
    Py_ssize_t length = LENGTH + (Py_ssize_t)number_at(at);
    if (!is_cached(at, length) && cache(at, length))
        return NULL;
    PyObject *environ = PyDict_Copy(PyTuple_GetItem(cached.entry, 0));
    PyObject *input = environ ? PyObject_CallObject(BytesIO, NULL) : NULL;
    if (!input || PyDict_SetItem(environ, input_name, input)
        || set_values(environ, PyTuple_GetItem(cached.entry, 1), at + length, end)) {
        Py_DecRef(environ);
        environ = NULL;
    }
    Py_DecRef(input);
    return environ;
}

/* Wakes the thread that sends ready responses while the application works on another request. */
static int wake(void)
{
    PyObject *sleeps = PyObject_CallObject(locked, NULL);
    Py_DecRef(sleeps);
    if (sleeps == &_Py_TrueStruct) {
        PyObject *done = PyObject_CallObject(release, NULL);
        Py_DecRef(done);
        return done ? 0 : -1;
    }
    return sleeps ? 0 : -1;
}

static int handle_each(PyObject *connection, PyObject *output, const char *at, const char *end)
{
    Py_ssize_t length;
    while ((length = frame_at(at, end))) {
        PyObject *environ = environ_of(at + HEADER, at + length);
        if (!environ)
            return -1;
        int failed = handle_one(connection, output, number_at(at + 4), environ);
        Py_DecRef(environ);
        at += length;
        if (failed || (at < end && wake()))
            return -1;
    }
    return 0;
}

/* Handles the requests of a job: (connection, None, None, data, at, end). */
static PyObject *handle_all(PyObject *module, PyObject *job)
{
    PyObject *connection, *none, *data;
    Py_ssize_t at, end, size;
    char *bytes;
    (void)module;
    if (!PyArg_ParseTuple(job, "OOOOnn", &connection, &none, &none, &data, &at, &end)
        || PyBytes_AsStringAndSize(data, &bytes, &size))
        return NULL;
    if (at < 0 || at > end || end > size) {
        PyErr_SetString(PyExc_ValueError, "no place in these bytes");
        return NULL;
    }
    PyObject *output = PyObject_GetAttrString(connection, "out");
    int failed = !output || handle_each(connection, output, bytes + at, bytes + end);
    Py_DecRef(output);
    if (failed)
        return NULL;
    Py_IncRef(&_Py_NoneStruct);
    return &_Py_NoneStruct;
}

/* ---- The module ------------------------------------------------------------------------------ */

static PyObject *begin(PyObject *module, PyObject *arguments)
{
    PyObject **targets[] = {&application, &parsed, &parse_common, &Response, &BytesIO, &locked, &release};
    (void)module;
    if (!PyArg_ParseTuple(arguments, "OOOOOOO", targets[0], targets[1], targets[2], targets[3], targets[4],
                          targets[5], targets[6]))
        return NULL;
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++)
        Py_IncRef(*targets[i]);
    Py_IncRef(&_Py_NoneStruct);
    return &_Py_NoneStruct;
}

static PyMethodDef methods[] = {
    {"begin", begin, METH_VARARGS, NULL},
    {"requests_end", requests_end, METH_VARARGS, NULL},
    {"handle_all", handle_all, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef definition = {
    .base = {1, NULL}, .name = "dunlin_wsgi", .size = -1, .methods = methods};

EXPORT PyObject *PyInit_dunlin_wsgi(void)
{
    static PyType_Slot slots[] = {
        {TP_CALL, (void *)call_start},
        {TP_DEALLOC, (void *)free_start},
        {TP_NEW, (void *)refuse_new},
        {0, NULL},
    };
    static PyType_Spec spec = {"dunlin_wsgi.start_response", sizeof(struct start), 0, TP_DEFAULT, slots};
    start_type = (PyTypeObject *)PyType_FromSpec(&spec);
    input_name = PyUnicode_FromString("wsgi.input");
    if (!start_type || !input_name)
        return NULL;
    return PyModule_Create2(&definition, ABI);
}
