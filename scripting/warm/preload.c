/* Stops a program before its start, and starts it once for each request.
 *
 * The server starts a fork server: the program itself, with this library preloaded, a socket to the
 * server as descriptor 0 and this library's file as descriptor 1. For each message on the socket the
 * fork server creates one process, which continues as if it had been started with the arguments, the
 * environment, the directory and the three descriptors of the message.
 *
 * DUNLIN_WARM selects where a fork server stops:
 *   native  before the program's own constructors and main;
 *   script  when an interpreter, after its preparation, sets DUNLIN_WARM_NOW and calls fork. That
 *           call returns in the new processes only. They find the message as a file at REQUEST.
 *
 * A message: the directory, the number of arguments, the arguments, the variables, each ended by NUL.
 * The fork server sends one message: "ready", and the files that it has loaded; or the reason why it
 * cannot serve. A new process writes its process ID, four bytes, to its standard output before
 * anything else. If these are missing, no part of the program has run for the request.
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <malloc.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum {
    REQUEST = 99,        /* where an interpreter's code finds the message */
    CONTROL = 100,       /* the socket, or the first free descriptor above */
    MESSAGE = 256 * 1024,
    HANDLERS = 64,
};

static int control = -1;
/* The descriptor of an interpreter's script, if the interpreter has it open; else -1. */
static int source = -1;
/* The interpreter uses the C library's environment. Others have a copy of their own, and set it
 * themselves. */
static int takes_environment;
static char message[MESSAGE];

/* ---- The work of fork -------------------------------------------------------------------------
 *
 * The new process must be a child of the server and not of the fork server, so that the server is
 * notified of its end, gets its status and keeps its process ID reserved, as for processes that it
 * started itself. Only CLONE_PARENT does that, and no function of the C library supports it. This
 * library therefore does the rest of fork's work beyond the system call: handlers, the thread ID in
 * the C library's own record, and the list of robust mutexes. Locks need no work: a fork server with
 * more than one thread is rejected, so that no other thread holds one. */

static struct {
    void (*prepare)(void);
    void (*parent)(void);
    void (*child)(void);
} handlers[HANDLERS];
static int handler_count;
static int handlers_lost;

typedef int register_atfork(void (*)(void), void (*)(void), void (*)(void), void *);

/* pthread_atfork calls this: each handler is recorded, and passed on for the program's own forks. */
EXPORT int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void),
                             void *object)
{
    register_atfork *next = (register_atfork *)dlsym(RTLD_NEXT, "__register_atfork");
    if (handler_count < HANDLERS) {
        handlers[handler_count].prepare = prepare;
        handlers[handler_count].parent = parent;
        handlers[handler_count].child = child;
        handler_count++;
    } else {
        handlers_lost = 1;
    }
    return next ? next(prepare, parent, child, object) : ENOSYS;
}

static void call(void (*handler)(void))
{
    if (handler)
        handler();
}

static void clear_if_unloaded(void (**handler)(void))
{
    Dl_info info;
    if (*handler && !dladdr((void *)*handler, &info))
        *handler = NULL;
}

/* Handlers of an unloaded library are invalid. While the fork server serves, none is unloaded. */
static void clear_unloaded_handlers(void)
{
    for (int i = 0; i < handler_count; i++) {
        clear_if_unloaded(&handlers[i].prepare);
        clear_if_unloaded(&handlers[i].parent);
        clear_if_unloaded(&handlers[i].child);
    }
}

static void *thread_number;      /* where the C library stores it */
static void *robust_list;
static size_t robust_length;

static void query_thread(void)
{
    /* A kernel without this keeps the fork server's ID there, which only matters to programs that
     * compare thread IDs across processes. */
    if (prctl(PR_GET_TID_ADDRESS, &thread_number) != 0)
        thread_number = NULL;
    if (syscall(SYS_get_robust_list, 0, &robust_list, &robust_length) != 0)
        robust_list = NULL;
}

static pid_t make_sibling(void)
{
    unsigned long flags = CLONE_PARENT | SIGCHLD;
    if (thread_number)
        flags |= CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID;
    for (int i = handler_count; i-- > 0;)
        call(handlers[i].prepare);
    /* The order of the last two arguments depends on the processor. */
#if defined(__x86_64__)
    pid_t pid = syscall(SYS_clone, flags, NULL, NULL, thread_number, NULL);
#elif defined(__aarch64__) || defined(__riscv) || defined(__arm__) || defined(__i386__)
    pid_t pid = syscall(SYS_clone, flags, NULL, NULL, NULL, thread_number);
#else
    pid_t pid = -1;
    errno = ENOSYS;
#endif
    int error = errno;
    if (pid == 0 && robust_list)
        syscall(SYS_set_robust_list, robust_list, robust_length);
    for (int i = 0; i < handler_count; i++)
        call(pid == 0 ? handlers[i].child : handlers[i].parent);
    errno = error;
    return pid;
}

/* ---- Pages that every process writes to ------------------------------------------------------
 *
 * A page that a new process writes to is copied for it. The page faults take longer than the
 * copies. At their end the first processes of an interpreter record the addresses of the pages that
 * they had copied, and later processes copy these pages all at once. Only pages that two processes
 * have recorded are used, which excludes those of a particular request. If this is not possible,
 * pages are copied one by one. */

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef SYS_process_madvise
#define SYS_process_madvise 440
#endif
#define THIS_PROCESS (-10000) /* PIDFD_SELF_THREAD */

enum {
    RECORDS = 2,             /* that have to agree */
    ATTEMPTS = 8,            /* to get them */
    RECORDERS = 16,          /* processes that may write one record; many are killed or execute another program */
    MIN_PAGES = 24,          /* for which the work pays off */
    MAX_PAGES = 1024,        /* that are copied at once */
    MAX_EXAMINED = 1 << 16,  /* pages that a process examines */
    PART = 512,              /* of them at a time */
};

/* The record of a process. Other processes may write there at any time, so its content is
 * untrusted. */
struct page_record {
    int claimed;
    int complete;
    int count;
    uintptr_t pages[MAX_PAGES];
    /* Working memory: in the process's own memory, the work itself would be recorded. */
    uint64_t part[PART];
    char lines[64 * 1024];
};

static struct page_record *record; /* that processes may write now; else NULL */
static pid_t recorder;             /* the process that may write it; its children may not */
static int recorded;               /* pages, in the process that writes it */
static int record_count, attempts, recorders;
static uintptr_t common_pages[MAX_PAGES];
static int common_count;
static struct iovec ranges[MAX_PAGES];
static int range_count;
static uintptr_t page_size;

/* Allocates another record, if needed. */
static void begin_record(void)
{
    recorders = 0;
    if (record)
        munmap(record, sizeof *record);
    record = NULL;
    if (record_count == RECORDS || attempts++ == ATTEMPTS)
        return;
    void *at = mmap(NULL, sizeof *record, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at != MAP_FAILED)
        record = at;
}

/* Records the pages of a mapping that this process has written to. False if there is no room. */
static int record_pages(int pagemap, uintptr_t start, uintptr_t end)
{
    while (start < end) {
        size_t want = (end - start) / page_size;
        if (want > PART)
            want = PART;
        ssize_t bytes = pread(pagemap, record->part, want * sizeof *record->part,
                              (off_t)(start / page_size * sizeof *record->part));
        if (bytes < (ssize_t)sizeof *record->part)
            return 1;
        for (size_t i = 0; i < bytes / sizeof *record->part; i++, start += page_size) {
            /* Present, not of a file, and not shared. */
            if ((record->part[i] >> 56 & 0xa1) != 0x81)
                continue;
            if (recorded == MAX_PAGES)
                return 0;
            record->pages[recorded++] = start;
        }
    }
    return 1;
}

/* Reads a line for each mapping, as far as there is room. */
static void read_lines(int maps)
{
    char *at = record->lines, *end = at + sizeof record->lines - 1;
    ssize_t more;
    while (at < end && (more = read(maps, at, end - at)) > 0)
        at += more;
    *at = 0;
}

static int record_mappings(int maps, int pagemap)
{
    uintptr_t examined = 0;
    read_lines(maps);
    for (char *line = record->lines, *end; (end = strchr(line, '\n')); line = end + 1) {
        /* As in "55d0a8000000-55d0a8021000 rw-p 00000000 ..." */
        char *rest;
        uintptr_t from = strtoul(line, &rest, 16);
        uintptr_t to = *rest == '-' ? strtoul(rest + 1, &rest, 16) : 0;
        if (to <= from || strncmp(rest, " rw", 3) != 0 || rest[4] != 'p')
            continue;
        examined += (to - from) / page_size;
        if (examined > MAX_EXAMINED || !record_pages(pagemap, from, to))
            return 0;
    }
    return 1;
}

/* Called at the end of a process, possibly by a signal handler. */
static void write_record(void)
{
    if (!record || recorder != getpid() || __atomic_exchange_n(&record->claimed, 1, __ATOMIC_RELAXED))
        return;
    int maps = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    if (maps >= 0 && pagemap >= 0 && record_mappings(maps, pagemap)) {
        record->count = recorded;
        __atomic_store_n(&record->complete, 1, __ATOMIC_RELEASE);
    }
    close(maps);
    close(pagemap);
}

EXPORT void _exit(int status)
{
    write_record();
    for (;;)
        syscall(SYS_exit_group, status);
}

__attribute__((destructor)) static void at_exit(void)
{
    write_record();
}

/* Keeps the intersection of two sorted lists. */
static void keep_common(const uintptr_t *pages, int count)
{
    int kept = 0;
    for (int i = 0, j = 0; i < common_count && j < count;) {
        if (common_pages[i] < pages[j]) {
            i++;
        } else if (common_pages[i] > pages[j]) {
            j++;
        } else {
            common_pages[kept++] = common_pages[i++];
            j++;
        }
    }
    common_count = kept;
}

static void add_page(uintptr_t page)
{
    struct iovec *last = range_count > 0 ? &ranges[range_count - 1] : NULL;
    if (last && (uintptr_t)last->iov_base + last->iov_len == page)
        last->iov_len += page_size;
    else
        ranges[range_count++] = (struct iovec){(void *)page, page_size};
}

static void read_record(void)
{
    int count = __atomic_load_n(&record->count, __ATOMIC_RELAXED);
    if (count < 0 || count > MAX_PAGES)
        count = 0;
    if (record_count++ > 0) {
        keep_common(record->pages, count);
    } else {
        memcpy(common_pages, record->pages, count * sizeof *common_pages);
        common_count = count;
    }
    if (record_count < RECORDS || common_count < MIN_PAGES)
        return;
    /* A new process has only the mappings of the fork server. */
    unsigned char residency;
    for (int i = 0; i < common_count; i++)
        if (mincore((void *)common_pages[i], page_size, &residency) == 0)
            add_page(common_pages[i]);
}

/* Called in the fork server, before it creates a process. */
static void update_pages(void)
{
    if (!record)
        return;
    int complete = __atomic_load_n(&record->complete, __ATOMIC_ACQUIRE);
    if (complete)
        read_record();
    if (complete || ++recorders == RECORDERS)
        begin_record();
}

/* Called in a new process. */
static void copy_pages(void)
{
    if (range_count == 0
        || syscall(SYS_process_madvise, THIS_PROCESS, ranges, range_count,
                   MADV_POPULATE_WRITE, 0) > 0)
        return;
    /* Before Linux 6.15 each range needs a call. If one fails, all fail. */
    for (int i = 0; i < range_count; i++)
        if (madvise(ranges[i].iov_base, ranges[i].iov_len, MADV_POPULATE_WRITE) != 0)
            return;
}

/* ---- The fork server ------------------------------------------------------------------------- */

static void report(const char *what, size_t length)
{
    /* If the server has ended, the next read fails. */
    (void)!send(control, what, length, MSG_NOSIGNAL);
}

static void report_failure(const char *why)
{
    report(why, strlen(why));
    _exit(0);
}

/* The kernel counts a thread as one more link of this directory. */
static int has_threads(void)
{
    struct stat task;
    return stat("/proc/self/task", &task) == 0 && task.st_nlink > 3;
}

struct list {
    char *at;
    char *end;
};

static void add(struct list *list, const char *name)
{
    size_t length = strlen(name) + 1;
    if (name[0] == '/' && (size_t)(list->end - list->at) >= length) {
        memcpy(list->at, name, length);
        list->at += length;
    }
}

static int add_object(struct dl_phdr_info *info, size_t size, void *list)
{
    (void)size;
    if (info->dlpi_name && strncmp(info->dlpi_name, "/proc/", 6) != 0)
        add(list, info->dlpi_name);
    return 0;
}

/* `files`: other files that an interpreter has loaded, one name per line. */
static void report_ready(char *files)
{
    struct list list = {message, message + MESSAGE / 2};
    memcpy(list.at, "ready", 6);
    list.at += 6;
    dl_iterate_phdr(add_object, &list);
    for (char *name = files ? strtok(files, "\n") : NULL; name; name = strtok(NULL, "\n"))
        add(&list, name);
    report(message, list.at - message);
}

/* Receives one message: its length, and its three descriptors. */
static ssize_t receive(int descriptors[3])
{
    struct iovec bytes = {message, MESSAGE - 1};
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(3 * sizeof(int))];
    } ancillary;
    struct msghdr header = {
        .msg_iov = &bytes,
        .msg_iovlen = 1,
        .msg_control = &ancillary,
        .msg_controllen = sizeof ancillary,
    };
    ssize_t length = recvmsg(control, &header, MSG_CMSG_CLOEXEC);
    if (length <= 0)
        return length;
    struct cmsghdr *rights = CMSG_FIRSTHDR(&header);
    if (!rights || rights->cmsg_type != SCM_RIGHTS || rights->cmsg_len != CMSG_LEN(3 * sizeof(int))
        || (header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)))
        _exit(1);
    memcpy(descriptors, CMSG_DATA(rights), 3 * sizeof(int));
    message[length] = 0;
    return length;
}

/* The arguments and the environment of the message, in one block, in the kernel's layout. */
static char **unpack(ssize_t length, int *argc)
{
    size_t strings = 0;
    for (ssize_t i = 0; i < length; i++)
        strings += message[i] == 0;
    char **block = malloc((strings + 2) * sizeof *block);
    if (!block)
        _exit(126);
    char *at = message + strlen(message) + 1;
    *argc = atoi(at);
    at += strlen(at) + 1;
    size_t next = 0;
    for (int i = 0; i < *argc; i++, at += strlen(at) + 1)
        block[next++] = at;
    block[next++] = NULL;
    for (; at < message + length; at += strlen(at) + 1)
        block[next++] = at;
    block[next] = NULL;
    return block;
}

static void write_number(int output, int32_t number)
{
    if (write(output, &number, sizeof number) != (ssize_t)sizeof number)
        _exit(126); /* No client waits any more. */
}

/* Sets up the new process by the message; no part of the program has run in it. */
static void set_up_process(ssize_t length, int descriptors[3], int is_script)
{
    setpgid(0, 0);
    recorder = getpid();
    write_number(descriptors[1], recorder);
    copy_pages();
    for (int i = 0; i < 3; i++) {
        dup2(descriptors[i], i);
        close(descriptors[i]);
    }
    close(control);
    control = -1;
    if (chdir(message) != 0) {
        perror(message);
        _exit(126);
    }
    if (!is_script)
        return;
    if (takes_environment) {
        int count;
        char **arguments = unpack(length, &count);
        environ = arguments + count + 1;
    }
    int file = memfd_create("request", MFD_CLOEXEC);
    if (file < 0 || pwrite(file, message, length, 0) != length
        || dup3(file, REQUEST, O_CLOEXEC) < 0) {
        perror("request");
        _exit(126);
    }
    close(file);
    if (source >= 0) {
        /* Its own position in the file: the interpreter's descriptor is shared by all processes. */
        char path[32];
        snprintf(path, sizeof path, "/proc/self/fd/%d", source);
        int own = open(path, O_RDONLY | O_CLOEXEC);
        if (own < 0 || dup3(own, source, O_CLOEXEC) < 0) {
            perror("script");
            _exit(126);
        }
        close(own);
    }
}

/* Creates a process for each request. Returns in these, and never in the fork server. */
static ssize_t serve(int is_script, char *files)
{
    if (has_threads())
        report_failure("it has threads before it begins");
    if (handlers_lost)
        report_failure("it has too many handlers of fork");
    clear_unloaded_handlers();
    query_thread();
    report_ready(files);
    dup2(0, 2); /* The fork server itself writes no more messages. */
    page_size = sysconf(_SC_PAGESIZE);
    if (is_script) {
        malloc_trim(0); /* Processes do not need the fork server's free memory. */
        begin_record();
    }
    for (;;) {
        int descriptors[3];
        ssize_t length = receive(descriptors);
        if (length < 0 && errno == EINTR)
            continue;
        if (length <= 0)
            _exit(0);
        update_pages();
        pid_t pid = make_sibling();
        if (pid == 0) {
            set_up_process(length, descriptors, is_script);
            return length;
        }
        if (pid < 0) {
            int32_t error = -errno;
            (void)!write(descriptors[1], &error, sizeof error);
        }
        for (int i = 0; i < 3; i++)
            close(descriptors[i]);
    }
}

/* ---- Interposed functions -------------------------------------------------------------------- */

/* Moves the socket away from the descriptors of the program. */
static int move_control(void)
{
    control = fcntl(0, F_DUPFD_CLOEXEC, CONTROL);
    if (control < 0)
        control = fcntl(0, F_DUPFD_CLOEXEC, 3);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    int output[2];
    if (control < 0 || null < 0 || pipe2(output, O_CLOEXEC) != 0)
        return 0;
    /* Of the same kind as in the later processes: interpreters inspect them when they start. */
    dup2(null, 0);
    dup2(output[1], 1);
    close(null);
    close(output[0]);
    close(output[1]);
    return 1;
}

typedef int start_main(int (*)(int, char **, char **), int, char **, void (*)(void), void (*)(void),
                       void (*)(void), void *);

/* Every program that uses the C library calls this first, after the constructors of its libraries
 * and before its own constructors. */
EXPORT int __libc_start_main(int (*main)(int, char **, char **), int argc, char **argv,
                             void (*init)(void), void (*fini)(void), void (*rtld_fini)(void),
                             void *stack_end)
{
    start_main *next = (start_main *)dlsym(RTLD_NEXT, "__libc_start_main");
    const char *kind = getenv("DUNLIN_WARM");
    if (kind) {
        int is_script = strcmp(kind, "script") == 0;
        unsetenv("DUNLIN_WARM");
        /* Each message has the values of a route's own `env`. */
        unsetenv("LD_PRELOAD");
        unsetenv("LD_BIND_NOW");
        if (!move_control())
            _exit(126);
        if (!is_script) {
            ssize_t length = serve(0, NULL);
            argv = unpack(length, &argc);
            environ = argv + argc + 1;
            program_invocation_name = argv[0];
            char *slash = strrchr(argv[0], '/');
            program_invocation_short_name = slash ? slash + 1 : argv[0];
        }
    }
    return next(main, argc, argv, init, fini, rtld_fini, stack_end);
}

/* Finds the script among the open descriptors. */
static void find_source(const char *path)
{
    struct stat script, open_file;
    if (!path || stat(path, &script) != 0)
        return;
    for (int fd = 3; fd < 64 && source < 0; fd++)
        if (fstat(fd, &open_file) == 0 && open_file.st_dev == script.st_dev
            && open_file.st_ino == script.st_ino)
            source = fd;
}

EXPORT pid_t fork(void)
{
    static pid_t (*next)(void);
    char *files = control >= 0 ? getenv("DUNLIN_WARM_NOW") : NULL;
    if (files) {
        const char *script = getenv("DUNLIN_WARM_SCRIPT");
        find_source(script);
        /* The kernel's name for the process of a script. */
        const char *slash = script ? strrchr(script, '/') : NULL;
        prctl(PR_SET_NAME, slash ? slash + 1 : "script");
        files = strdup(files);
        takes_environment = getenv("DUNLIN_WARM_ENVIRONMENT") != NULL;
        unsetenv("DUNLIN_WARM_ENVIRONMENT");
        unsetenv("DUNLIN_WARM_NOW");
        unsetenv("DUNLIN_WARM_SCRIPT");
        serve(1, files);
        return 0;
    }
    if (!next)
        next = (pid_t (*)(void))dlsym(RTLD_NEXT, "fork");
    if (next)
        return next();
    errno = ENOSYS;
    return -1;
}
