/* The minimum of any broker: receive a request, store its bytes in a mapped file, answer.

   floor PORT UPSTREAM_PORT DIRECTORY SYNC QUEUES

   One thread has all connections, as our loop does. The first answer to a request comes from a real
   broker at UPSTREAM_PORT; later requests of the same code and length get the same bytes with their
   own opaque. A send's frame is copied to the end of a file, whose pages a second thread allocates in
   advance; a third one calls fdatasync twice a second, or with SYNC before each answer, for all
   frames received until then. It reads no headers and checks, numbers or indexes nothing; with
   QUEUES it writes an entry for each send into the next one of that many mapped files.

   So it isn't a broker, and its cost is the kernel's part of a broker's cost. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    RECEIVE_BYTES = 1 << 18,
    PEERS_MAX = 1024,
    ANSWERS_MAX = 256,
    WAITING_BYTES = 1 << 22,
    EVENTS = 256,
    ENTRY_BYTES = 20,
    QUEUE_BYTES = 6000000,
};
#define FILE_BYTES (256UL << 20)

struct answer {
    long code, length;
    char *before, *after; /* of the opaque */
    size_t before_size, after_size, header_size;
};

struct peer {
    char *kept; /* the beginning of a frame */
    size_t kept_size;
    char *out; /* answers that wait for a flush */
    size_t out_size;
    int is_waiting;
};

static struct answer answers[ANSWERS_MAX];
static int answer_count;
static struct peer peers[PEERS_MAX];
static char received[RECEIVE_BYTES * 2];
static struct sockaddr_in real;
static int loop = -1, flushed_event = -1, is_sync;
static const char *directory;

/* The position of each queue's next entry. */
static char **queues;
static size_t *queue_positions;
static long queue_count, next_queue;

/* The current file, the next one, and how far each is flushed. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wanted = PTHREAD_COND_INITIALIZER, made = PTHREAD_COND_INITIALIZER;
static char *map, *next_map;
static int file = -1, next_file = -1;
static size_t position;
static uint64_t written, flushed; /* turns, not bytes */
static int file_number;

static void die(const char *what) {
    perror(what);
    exit(1);
}

static uint32_t big(const char *at) {
    uint32_t word;
    memcpy(&word, at, 4);
    return ntohl(word);
}

static void *make_files(void *unused) {
    (void)unused;
    for (;;) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%06d", directory, file_number++);
        int one = open(path, O_RDWR | O_CREAT, 0600);
        if (one < 0 || posix_fallocate(one, 0, FILE_BYTES)) die(path);
        char *its = mmap(NULL, FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, one, 0);
        if (its == MAP_FAILED) die("mmap");
        for (size_t at = 0; at < FILE_BYTES; at += 1 << 20)
            madvise(its + at, 1 << 20, MADV_POPULATE_WRITE);
        unlink(path);
        pthread_mutex_lock(&lock);
        while (next_map) pthread_cond_wait(&wanted, &lock);
        next_map = its;
        next_file = one;
        pthread_cond_broadcast(&made);
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}

/* Map a file for each queue, with its first page allocated, as in a queue with a message. */
static void make_queues(void) {
    queues = calloc(queue_count, sizeof *queues);
    queue_positions = calloc(queue_count, sizeof *queue_positions);
    for (long number = 0; number < queue_count; number++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/queue-%06ld", directory, number);
        int one = open(path, O_RDWR | O_CREAT, 0600);
        if (one < 0 || ftruncate(one, QUEUE_BYTES)) die(path);
        queues[number] = mmap(NULL, QUEUE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, one, 0);
        if (queues[number] == MAP_FAILED) die("mmap");
        memset(queues[number], 0, ENTRY_BYTES);
        close(one);
        unlink(path);
    }
}

static void *flush(void *unused) {
    (void)unused;
    for (;;) {
        pthread_mutex_lock(&lock);
        while (is_sync && written == flushed) pthread_cond_wait(&wanted, &lock);
        uint64_t upto = written;
        int one = dup(file);
        pthread_mutex_unlock(&lock);
        fdatasync(one);
        close(one);
        if (!is_sync) {
            usleep(500000);
            continue;
        }
        pthread_mutex_lock(&lock);
        flushed = upto;
        pthread_mutex_unlock(&lock);
        uint64_t done = 1;
        if (write(flushed_event, &done, 8) != 8) die("eventfd");
    }
    return NULL;
}

static void roll(void) {
    pthread_mutex_lock(&lock);
    while (!next_map) pthread_cond_wait(&made, &lock);
    if (map) {
        if (is_sync) fdatasync(file);
        munmap(map, FILE_BYTES);
        close(file);
    }
    map = next_map;
    file = next_file;
    next_map = NULL;
    position = 0;
    pthread_cond_broadcast(&wanted);
    pthread_mutex_unlock(&lock);
}

static void keep(const char *frame, size_t size) {
    if (!map || position + size > FILE_BYTES) roll();
    memcpy(map + position, frame, size);
    if (queue_count) {
        char *entry = queues[next_queue] + queue_positions[next_queue];
        memcpy(entry, &position, sizeof position);
        memcpy(entry + sizeof position, &size, sizeof size);
        size_t end = queue_positions[next_queue] + ENTRY_BYTES;
        queue_positions[next_queue] = end < QUEUE_BYTES ? end : 0;
        if (++next_queue == queue_count) next_queue = 0;
    }
    position += size;
}

static void read_all(int from, char *to, size_t size) {
    while (size) {
        ssize_t got = read(from, to, size);
        if (got <= 0) die("upstream");
        to += got;
        size -= got;
    }
}

static const char *OPAQUE = "\"opaque\":";

/* Get the answer from the real broker, which closes connections idle for two minutes. */
static struct answer *learn(long code, const char *frame, size_t size) {
    static char head[4];
    int upstream = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(upstream, (struct sockaddr *)&real, sizeof real)) die("upstream");
    if (write(upstream, frame, size) != (ssize_t)size) die("upstream");
    read_all(upstream, head, 4);
    size_t length = big(head);
    char *whole = malloc(4 + length);
    memcpy(whole, head, 4);
    read_all(upstream, whole + 4, length);
    close(upstream);
    struct answer *one = &answers[answer_count < ANSWERS_MAX - 1 ? answer_count++ : answer_count];
    size_t header_size = big(whole + 4) & 0xFFFFFF;
    char *at = memmem(whole + 8, header_size, OPAQUE, strlen(OPAQUE));
    if (!at) die("an answer without an opaque");
    at += strlen(OPAQUE);
    char *end = at;
    while (*end >= '0' && *end <= '9') end++;
    one->code = code;
    one->length = (long)size;
    one->before = whole;
    one->before_size = at - whole;
    one->after = end;
    one->after_size = whole + 4 + length - end;
    one->header_size = header_size - (end - at);
    return one;
}

static int is_kept(long code) {
    return code == 10 || code == 11 || code == 310 || code == 320;
}

/* Serve one frame; return where its answer ends. */
static char *serve(const char *frame, size_t size, char *out) {
    const char *header = frame + 8;
    size_t header_size = big(frame + 4) & 0xFFFFFF;
    long code = header_size > 8 ? strtol(header + 8, NULL, 10) : -1;
    const char *opaque = memmem(header, header_size, OPAQUE, strlen(OPAQUE));
    if (!opaque) die("a request without an opaque");
    opaque += strlen(OPAQUE);
    while (*opaque == ' ') opaque++;
    size_t digits = 0;
    while (opaque[digits] >= '0' && opaque[digits] <= '9') digits++;
    struct answer *one = NULL;
    if (is_kept(code)) {
        for (int i = 0; i < answer_count && !one; i++)
            if (answers[i].code == code && answers[i].length == (long)size) one = &answers[i];
        if (code != 11) keep(frame, size);
    }
    if (!one) one = learn(is_kept(code) ? code : -1, frame, size);
    uint32_t total = htonl(one->before_size + digits + one->after_size - 4);
    uint32_t word = htonl(one->header_size + digits);
    char *to = out;
    memcpy(to, one->before, one->before_size);
    memcpy(to, &total, 4);
    memcpy(to + 4, &word, 4);
    to += one->before_size;
    memcpy(to, opaque, digits);
    to += digits;
    memcpy(to, one->after, one->after_size);
    return to + one->after_size;
}

static void send_all(int to, const char *data, size_t size) {
    while (size) {
        ssize_t sent = send(to, data, size, MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN) {
            usleep(100);
            continue;
        }
        if (sent <= 0) return;
        data += sent;
        size -= sent;
    }
}

static void end(int one) {
    struct peer *its = &peers[one];
    free(its->kept);
    free(its->out);
    memset(its, 0, sizeof *its);
    close(one);
}

static void hear(int one) {
    static char out[WAITING_BYTES * 2];
    struct peer *its = &peers[one];
    memcpy(received, its->kept, its->kept_size);
    ssize_t got = recv(one, received + its->kept_size, RECEIVE_BYTES, 0);
    if (got <= 0) {
        if (got == 0 || errno != EAGAIN) end(one);
        return;
    }
    size_t size = its->kept_size + got, at = 0;
    char *to = out;
    while (size - at >= 8 && size - at >= 4 + (size_t)big(received + at)) {
        size_t whole = 4 + (size_t)big(received + at);
        to = serve(received + at, whole, to);
        at += whole;
        if (to - out > WAITING_BYTES) {
            send_all(one, out, to - out);
            to = out;
        }
    }
    its->kept_size = size - at;
    if (its->kept_size) {
        its->kept = realloc(its->kept, its->kept_size);
        memcpy(its->kept, received + at, its->kept_size);
    }
    if (to == out) return;
    if (!is_sync) {
        send_all(one, out, to - out);
        return;
    }
    its->out = realloc(its->out, its->out_size + (to - out));
    memcpy(its->out + its->out_size, out, to - out);
    its->out_size += to - out;
    pthread_mutex_lock(&lock);
    written++;
    pthread_cond_broadcast(&wanted);
    pthread_mutex_unlock(&lock);
    its->is_waiting = 1;
}

/* Answer the sends from before the flush. A later one waits for the next flush, with everything
   after it: a window is answered completely or not at all, which is good enough here. */
static void answer_flushed(void) {
    uint64_t times;
    if (read(flushed_event, &times, 8) != 8) return;
    pthread_mutex_lock(&lock);
    int is_all = flushed == written;
    pthread_mutex_unlock(&lock);
    if (!is_all) return;
    for (int one = 0; one < PEERS_MAX; one++) {
        struct peer *its = &peers[one];
        if (!its->is_waiting) continue;
        its->is_waiting = 0;
        send_all(one, its->out, its->out_size);
        its->out_size = 0;
    }
}

static void watch(int one) {
    struct epoll_event event = {.events = EPOLLIN, .data.fd = one};
    if (epoll_ctl(loop, EPOLL_CTL_ADD, one, &event)) die("epoll_ctl");
}

int main(int count, char **words) {
    if (count != 6) {
        fprintf(stderr, "usage: floor PORT UPSTREAM_PORT DIRECTORY SYNC QUEUES\n");
        return 2;
    }
    directory = words[3];
    is_sync = atoi(words[4]);
    queue_count = atol(words[5]);
    make_queues();
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int yes = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    address.sin_port = htons(atoi(words[2]));
    real = address;
    loop = epoll_create1(0);
    flushed_event = eventfd(0, EFD_NONBLOCK);
    watch(flushed_event);
    pthread_t thread;
    pthread_create(&thread, NULL, make_files, NULL);
    roll();
    pthread_create(&thread, NULL, flush, NULL);
    address.sin_port = htons(atoi(words[1]));
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 511))
        die("listen");
    watch(listener);
    for (;;) {
        struct epoll_event events[EVENTS];
        int ready = epoll_wait(loop, events, EVENTS, -1);
        for (int i = 0; i < ready; i++) {
            int one = events[i].data.fd;
            if (one == flushed_event) {
                answer_flushed();
            } else if (one == listener) {
                int peer = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
                if (peer < 0) continue;
                if (peer >= PEERS_MAX) {
                    close(peer);
                    continue;
                }
                setsockopt(peer, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
                memset(&peers[peer], 0, sizeof peers[peer]);
                watch(peer);
            } else {
                hear(one);
            }
        }
    }
}
