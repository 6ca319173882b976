/* A server of token streams that knows when it sent what: the truth of the client benchmark.
 *
 * emitter FIRST_US INTERVAL_US [PORT]: prints its port on loopback, which other processes of it may
 * have too (the kernel spreads connections), then answers POST requests, HTTP/1.1, kept alive. A request has `max_tokens` and `seed`, which is its number. Its head is answered at
 * once, its first token FIRST_US after it came, each further one INTERVAL_US after the one before,
 * with the bytes of vLLM's completions. When standard input ends, prints for each request that
 * was answered whole
 *     number received_ns first_ns last_ns
 * (CLOCK_MONOTONIC, read just before the token is handed to the kernel), and at last
 *     lag p99_us
 * of its events against its own schedule. It spins: give it a processor of its own.
 *
 * All streams share the two delays, so two first-in-first-out rings hold them in order of time.
 * A client that does not read until a socket is full is cut off.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { RING = 1 << 16, REQUEST = 4096, FRAME = 1024, READY = 64, BURST = 64, BUCKETS = 20000 };

struct stream {
    int fd, asked, sent, waits;
    long number;
    int64_t due, received, first;
    size_t have;
    char request[REQUEST];
};
struct ring {
    struct stream *at[RING];
    unsigned head, tail;
};
struct truth {
    long number;
    int64_t received, first, last;
};

static struct ring firsts, nexts;
static struct truth *truths;
static size_t truth_count, truth_room;
static uint64_t lags[BUCKETS + 1], events; /* by 10 us; the last holds what is beyond */
static int64_t first_ns, interval_ns;
static char token[4 * FRAME];
static size_t token_bytes;

static const char HEAD[] = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
                           "Transfer-Encoding: chunked\r\n\r\n";
static const char EVENT[] =
    "data: {\"id\":\"cmpl-00000000000000000000000000000000\",\"object\":\"text_completion\","
    "\"created\":1764600000,\"model\":\"simulated\",\"choices\":[%s]%s}\n\n";
static const char CHOICE[] = "{\"index\":0,\"text\":\" hello\",\"logprobs\":null,"
                             "\"finish_reason\":%s,\"stop_reason\":null,\"token_ids\":null}";
static const char USAGE[] =
    ",\"usage\":{\"prompt_tokens\":3,\"total_tokens\":%d,\"completion_tokens\":%d}";

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static size_t frame(char *out, const char *finish, const char *usage) {
    char choice[FRAME] = "", event[3 * FRAME];
    if (finish) sprintf(choice, CHOICE, finish);
    int bytes = sprintf(event, EVENT, choice, usage);
    return (size_t)sprintf(out, "%x\r\n%s\r\n", (unsigned)bytes, event);
}

static size_t last_frames(char *out, int asked) {
    char usage[FRAME];
    sprintf(usage, USAGE, asked + 3, asked);
    size_t bytes = frame(out, "\"length\"", "");
    bytes += frame(out + bytes, NULL, usage);
    return bytes + (size_t)sprintf(out + bytes, "e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n");
}

static void push(struct ring *ring, struct stream *stream) {
    if (ring->tail - ring->head == RING) abort();
    ring->at[ring->tail++ % RING] = stream;
    stream->waits = 1;
}

static void drop(struct stream *stream) {
    if (stream->fd >= 0) close(stream->fd);
    stream->fd = -1;
    if (!stream->waits) free(stream);
}

static void note(const struct stream *stream, int64_t last) {
    if (truth_count == truth_room) {
        truth_room = truth_room ? 2 * truth_room : 4096;
        truths = realloc(truths, truth_room * sizeof *truths);
        if (!truths) abort();
    }
    truths[truth_count++] =
        (struct truth){stream->number, stream->received, stream->first, last};
}

static void emit(struct ring *ring) {
    static char final[12 * FRAME];
    struct stream *stream = ring->at[ring->head++ % RING];
    stream->waits = 0;
    if (stream->fd < 0) {
        free(stream);
        return;
    }
    const char *bytes = token;
    size_t size = token_bytes;
    int is_last = stream->sent + 1 == stream->asked;
    if (is_last) {
        size = last_frames(final, stream->asked);
        bytes = final;
    }
    int64_t at = now();
    if (send(stream->fd, bytes, size, MSG_NOSIGNAL) != (ssize_t)size) {
        drop(stream);
        return;
    }
    int64_t bucket = (at - stream->due) / 10000;
    lags[bucket < BUCKETS ? bucket : BUCKETS]++;
    events++;
    if (!stream->sent++) stream->first = at;
    stream->due += interval_ns;
    if (is_last)
        note(stream, at);
    else
        push(&nexts, stream);
}

static long value(const char *body, const char *name) {
    const char *found = strstr(body, name);
    return found ? strtol(found + strlen(name), NULL, 10) : 0;
}

static void receive(struct stream *stream) {
    ssize_t got = recv(stream->fd, stream->request + stream->have, REQUEST - 1 - stream->have, 0);
    int64_t at = now();
    if (got <= 0) {
        drop(stream);
        return;
    }
    stream->have += (size_t)got;
    stream->request[stream->have] = 0;
    char *body = strstr(stream->request, "\r\n\r\n");
    char *length = strcasestr(stream->request, "content-length:");
    if (!body || !length) return;
    body += 4;
    if (stream->have - (size_t)(body - stream->request) < strtoul(length + 15, NULL, 10)) return;
    stream->number = value(body, "\"seed\":");
    stream->asked = (int)value(body, "\"max_tokens\":");
    stream->sent = 0;
    stream->have = 0;
    stream->received = at;
    stream->due = at + first_ns;
    if (send(stream->fd, HEAD, sizeof HEAD - 1, MSG_NOSIGNAL) != sizeof HEAD - 1)
        drop(stream);
    else
        push(&firsts, stream);
}

static void welcome(int poller, int listener) {
    int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK), one = 1;
    if (fd < 0) return;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    struct stream *stream = calloc(1, sizeof *stream);
    if (!stream) abort();
    stream->fd = fd;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = stream};
    epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event);
}

static void report(void) {
    for (size_t i = 0; i < truth_count; i++)
        printf("%ld %lld %lld %lld\n", truths[i].number, (long long)truths[i].received,
               (long long)truths[i].first, (long long)truths[i].last);
    uint64_t seen = 0;
    int bucket = 0;
    while (bucket < BUCKETS && (seen += lags[bucket]) * 100 < events * 99) bucket++;
    printf("lag %d\n", 10 * (bucket + 1));
}

int main(int count, char **arguments) {
    if (count != 3 && count != 4) return 2;
    first_ns = 1000 * strtoll(arguments[1], NULL, 10);
    interval_ns = 1000 * strtoll(arguments[2], NULL, 10);
    token_bytes = frame(token, "null", "");

    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), poller = epoll_create1(0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int shared = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEPORT, &shared, sizeof shared);
    if (count == 4) address.sin_port = htons((uint16_t)atoi(arguments[3]));
    if (bind(listener, (struct sockaddr *)&address, size) || listen(listener, 4096)) return 1;
    getsockname(listener, (struct sockaddr *)&address, &size);
    struct epoll_event stdin_event = {.events = EPOLLIN, .data.ptr = &firsts};
    struct epoll_event listener_event = {.events = EPOLLIN, .data.ptr = &nexts};
    epoll_ctl(poller, EPOLL_CTL_ADD, STDIN_FILENO, &stdin_event);
    epoll_ctl(poller, EPOLL_CTL_ADD, listener, &listener_event);
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);

    for (;;) {
        struct epoll_event ready[READY];
        int found = epoll_wait(poller, ready, READY, 0);
        for (int i = 0; i < found; i++) {
            if (ready[i].data.ptr == &firsts) {
                report();
                return 0;
            }
            if (ready[i].data.ptr == &nexts)
                welcome(poller, listener);
            else
                receive(ready[i].data.ptr);
        }
        struct ring *rings[] = {&firsts, &nexts};
        for (int i = 0; i < 2; i++)
            for (int sent = 0; sent < BURST && rings[i]->head != rings[i]->tail &&
                               rings[i]->at[rings[i]->head % RING]->due <= now();
                 sent++)
                emit(rings[i]);
    }
}
