/* Records what a process does to the files below a directory: what is written, flushed and named,
 * in the order in which it happens. Loaded with LD_PRELOAD; DISK_RECORDER_ROOT is the directory and
 * DISK_RECORDER_LOG the file that the record is appended to.
 *
 * A record is a line of fields with tabs between them, then as many bytes as its last field says:
 *
 *     create  INODE PATH  .     0
 *     mkdir   0     PATH  .     0
 *     write   INODE PATH  AT    LENGTH   and the bytes
 *     size    INODE PATH  SIZE  0
 *     flush   INODE PATH  .     0        of a file
 *     names   0     PATH  .     0        of a directory
 *     rename  0     FROM  TO    0
 *     link    0     FROM  TO    0
 *     remove  0     PATH  .     0
 *
 * The calls are made one at a time, so that their order is known.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define FILES_MAX 65536
#define PATH_BYTES 4096

static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
static const char *root;
static int log_file = -1;
static char *names[FILES_MAX];

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("DISK_RECORDER_LOG");
    root = getenv("DISK_RECORDER_ROOT");
    if (path && root)
        log_file = syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

/* Whether the path is the root or below; writes it whole into `whole`. */
static int is_ours(int directory, const char *path, char *whole) {
    if (log_file < 0 || !path) return 0;
    if (path[0] == '/') {
        snprintf(whole, PATH_BYTES, "%s", path);
    } else if (directory == AT_FDCWD) {
        char here[PATH_BYTES / 2];
        if (syscall(SYS_getcwd, here, sizeof here) < 0) return 0;
        snprintf(whole, PATH_BYTES, "%s/%s", here, path);
    } else {
        return 0;
    }
    size_t length = strlen(root);
    return strncmp(whole, root, length) == 0 && (whole[length] == '/' || !whole[length]);
}

static unsigned long inode_of(int file) {
    struct stat facts;
    return fstat(file, &facts) == 0 ? facts.st_ino : 0;
}

static void record(const char *what, unsigned long inode, const char *path, const char *other,
                   const void *bytes, size_t length) {
    char line[3 * PATH_BYTES];
    int written = snprintf(line, sizeof line, "%s\t%lu\t%s\t%s\t%zu\n", what, inode, path, other, length);
    struct iovec both[2] = {{line, written}, {(void *)bytes, length}};
    if (syscall(SYS_writev, log_file, both, length ? 2 : 1) < 0) abort();
}

static void record_at(const char *what, int file, off_t at, const void *bytes, size_t length) {
    char number[32];
    snprintf(number, sizeof number, "%lld", (long long)at);
    record(what, inode_of(file), names[file], number, bytes, length);
}

static int is_open(int file) {
    return file >= 0 && file < FILES_MAX && names[file];
}

static int opened(int directory, const char *path, int flags, mode_t mode) {
    char whole[PATH_BYTES];
    if (!is_ours(directory, path, whole)) return syscall(SYS_openat, directory, path, flags, mode);
    pthread_mutex_lock(&one_at_a_time);
    struct stat facts;
    int was_there = fstatat(AT_FDCWD, whole, &facts, 0) == 0;
    int file = syscall(SYS_openat, directory, path, flags, mode);
    if (file >= 0 && file < FILES_MAX) {
        free(names[file]);
        names[file] = strdup(whole);
        if ((flags & O_CREAT) && !was_there) record("create", inode_of(file), whole, ".", NULL, 0);
        else if (flags & O_TRUNC) record_at("size", file, 0, NULL, 0);
    }
    int error = errno;
    pthread_mutex_unlock(&one_at_a_time);
    errno = error;
    return file;
}

#define OPEN(NAME, DIRECTORY_PARAMETER, DIRECTORY)                     \
    int NAME(DIRECTORY_PARAMETER const char *path, int flags, ...) {   \
        va_list rest;                                                  \
        va_start(rest, flags);                                         \
        mode_t mode = (flags & (O_CREAT | __O_TMPFILE)) ? va_arg(rest, mode_t) : 0; \
        va_end(rest);                                                  \
        return opened(DIRECTORY, path, flags, mode);                   \
    }
#define COMMA ,
OPEN(open, , AT_FDCWD)
OPEN(open64, , AT_FDCWD)
OPEN(openat, int directory COMMA, directory)
OPEN(openat64, int directory COMMA, directory)

int close(int file) {
    if (is_open(file)) {
        pthread_mutex_lock(&one_at_a_time);
        free(names[file]);
        names[file] = NULL;
        pthread_mutex_unlock(&one_at_a_time);
    }
    return syscall(SYS_close, file);
}

/* One more number for an open file. */
static int doubled(int file, int copy) {
    if (copy < 0 || copy >= FILES_MAX || file < 0 || file >= FILES_MAX || copy == file) return copy;
    if (names[file] || names[copy]) {
        pthread_mutex_lock(&one_at_a_time);
        free(names[copy]);
        names[copy] = names[file] ? strdup(names[file]) : NULL;
        pthread_mutex_unlock(&one_at_a_time);
    }
    return copy;
}
int dup(int file) { return doubled(file, syscall(SYS_dup, file)); }
int dup2(int file, int copy) { return file == copy ? copy : dup3(file, copy, 0); }
int dup3(int file, int copy, int flags) { return doubled(file, syscall(SYS_dup3, file, copy, flags)); }

static int controlled(int file, int what, void *argument) {
    int result = syscall(SYS_fcntl, file, what, argument);
    return what == F_DUPFD || what == F_DUPFD_CLOEXEC ? doubled(file, result) : result;
}
#define FCNTL(NAME)                                \
    int NAME(int file, int what, ...) {            \
        va_list rest;                              \
        va_start(rest, what);                      \
        void *argument = va_arg(rest, void *);     \
        va_end(rest);                              \
        return controlled(file, what, argument);   \
    }
FCNTL(fcntl)
FCNTL(fcntl64)

ssize_t write(int file, const void *bytes, size_t length) {
    if (!is_open(file)) return syscall(SYS_write, file, bytes, length);
    pthread_mutex_lock(&one_at_a_time);
    ssize_t written = syscall(SYS_write, file, bytes, length);
    if (written > 0) record_at("write", file, lseek(file, 0, SEEK_CUR) - written, bytes, written);
    pthread_mutex_unlock(&one_at_a_time);
    return written;
}

ssize_t writev(int file, const struct iovec *pieces, int count) {
    if (!is_open(file)) return syscall(SYS_writev, file, pieces, count);
    /* The first piece alone: the caller goes on with what is left. */
    for (int piece = 0; piece < count; piece++)
        if (pieces[piece].iov_len) return write(file, pieces[piece].iov_base, pieces[piece].iov_len);
    return 0;
}

static ssize_t written_at(int file, const void *bytes, size_t length, off_t at) {
    if (!is_open(file)) return syscall(SYS_pwrite64, file, bytes, length, at);
    pthread_mutex_lock(&one_at_a_time);
    ssize_t written = syscall(SYS_pwrite64, file, bytes, length, at);
    if (written > 0) record_at("write", file, at, bytes, written);
    pthread_mutex_unlock(&one_at_a_time);
    return written;
}
ssize_t pwrite(int file, const void *bytes, size_t length, off_t at) { return written_at(file, bytes, length, at); }
ssize_t pwrite64(int file, const void *bytes, size_t length, off64_t at) { return written_at(file, bytes, length, at); }

static int resized(int file, off_t size) {
    if (!is_open(file)) return syscall(SYS_ftruncate, file, size);
    pthread_mutex_lock(&one_at_a_time);
    int result = syscall(SYS_ftruncate, file, size);
    if (result == 0) record_at("size", file, size, NULL, 0);
    pthread_mutex_unlock(&one_at_a_time);
    return result;
}
int ftruncate(int file, off_t size) { return resized(file, size); }
int ftruncate64(int file, off64_t size) { return resized(file, size); }

static int flushed(long call, int file) {
    if (!is_open(file)) return syscall(call, file);
    pthread_mutex_lock(&one_at_a_time);
    int result = syscall(call, file);
    struct stat facts;
    if (result == 0 && fstat(file, &facts) == 0)
        record(S_ISDIR(facts.st_mode) ? "names" : "flush", facts.st_ino, names[file], ".", NULL, 0);
    pthread_mutex_unlock(&one_at_a_time);
    return result;
}
int fsync(int file) { return flushed(SYS_fsync, file); }
int fdatasync(int file) { return flushed(SYS_fdatasync, file); }

static int named(const char *what, int from_directory, const char *from, int to_directory,
                 const char *to, unsigned flags) {
    char whole_from[PATH_BYTES], whole_to[PATH_BYTES];
    int ours = is_ours(from_directory, from, whole_from) && is_ours(to_directory, to, whole_to);
    int is_link = what[0] == 'l';
    if (ours) pthread_mutex_lock(&one_at_a_time);
    int result = is_link ? syscall(SYS_linkat, from_directory, from, to_directory, to, flags)
                         : syscall(SYS_renameat2, from_directory, from, to_directory, to, flags);
    int error = errno;
    if (ours && result == 0) record(what, 0, whole_from, whole_to, NULL, 0);
    if (ours) pthread_mutex_unlock(&one_at_a_time);
    errno = error;
    return result;
}
int rename(const char *from, const char *to) { return named("rename", AT_FDCWD, from, AT_FDCWD, to, 0); }
int renameat(int a, const char *from, int b, const char *to) { return named("rename", a, from, b, to, 0); }
int renameat2(int a, const char *from, int b, const char *to, unsigned flags) { return named("rename", a, from, b, to, flags); }
int link(const char *from, const char *to) { return named("link", AT_FDCWD, from, AT_FDCWD, to, 0); }
int linkat(int a, const char *from, int b, const char *to, int flags) { return named("link", a, from, b, to, flags); }

static int removed(int directory, const char *path, int flags) {
    char whole[PATH_BYTES];
    int ours = is_ours(directory, path, whole);
    if (ours) pthread_mutex_lock(&one_at_a_time);
    int result = syscall(SYS_unlinkat, directory, path, flags);
    int error = errno;
    if (ours && result == 0) record("remove", 0, whole, ".", NULL, 0);
    if (ours) pthread_mutex_unlock(&one_at_a_time);
    errno = error;
    return result;
}
int unlink(const char *path) { return removed(AT_FDCWD, path, 0); }
int unlinkat(int directory, const char *path, int flags) { return removed(directory, path, flags); }
int rmdir(const char *path) { return removed(AT_FDCWD, path, AT_REMOVEDIR); }

static int made(int directory, const char *path, mode_t mode) {
    char whole[PATH_BYTES];
    int ours = is_ours(directory, path, whole);
    if (ours) pthread_mutex_lock(&one_at_a_time);
    int result = syscall(SYS_mkdirat, directory, path, mode);
    int error = errno;
    if (ours && result == 0) record("mkdir", 0, whole, ".", NULL, 0);
    if (ours) pthread_mutex_unlock(&one_at_a_time);
    errno = error;
    return result;
}
int mkdir(const char *path, mode_t mode) { return made(AT_FDCWD, path, mode); }
int mkdirat(int directory, const char *path, mode_t mode) { return made(directory, path, mode); }
