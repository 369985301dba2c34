/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers every send with code 0, keeps nothing and looks at nothing but the opaque: the
 * rate of the load generator against this is the most that the generator can do.
 *
 *     sink PORT
 *
 * Headers are JSON, and opaques have ten digits, as load.c makes them.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define ROOM (1 << 22)

struct connection { int fd; size_t used; char in[ROOM]; };

static const char answer[] =
    "{\"code\":0,\"extFields\":{\"queueId\":\"0\",\"msgId\":\"7F00000100002A9F0000000000000000\","
    "\"queueOffset\":\"0\"},\"flag\":1,\"language\":\"JAVA\",\"opaque\":0000000000,"
    "\"serializeTypeCurrentRPC\":\"JSON\",\"version\":399}";
#define ANSWER (sizeof answer - 1)

static char out[ROOM];

/* Answers all frames that are there; gives 0 when the connection has ended. */
static int serve(struct connection *c)
{
    ssize_t got = read(c->fd, c->in + c->used, ROOM - c->used);
    if (got <= 0)
        return 0;
    c->used += got;
    size_t position = 0, size = 0, opaque = strstr(answer, "\"opaque\":") - answer + 9;
    while (c->used - position >= 8 && size + 8 + ANSWER < ROOM) {
        uint32_t length, header, sizes[2] = {htonl(4 + ANSWER), htonl(ANSWER)};
        memcpy(&length, c->in + position, 4);
        memcpy(&header, c->in + position + 4, 4);
        if (c->used - position < 4 + ntohl(length))
            break;
        char *found = memmem(c->in + position + 8, ntohl(header), "\"opaque\":", 9);
        memcpy(out + size, sizes, 8);
        memcpy(out + size + 8, answer, ANSWER);
        if (found)
            memcpy(out + size + 8 + opaque, found + 9, 10);
        size += 8 + ANSWER;
        position += 4 + ntohl(length);
    }
    memmove(c->in, c->in + position, c->used -= position);
    for (size_t wrote = 0; wrote < size;) {
        ssize_t more = write(c->fd, out + wrote, size - wrote);
        if (more < 0)
            return 0;
        wrote += more;
    }
    return 1;
}

int main(int argc, char **argv)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct epoll_event event = {.events = EPOLLIN}, events[64];
    int listener = socket(AF_INET, SOCK_STREAM, 0), poller = epoll_create1(0), one = 1;
    if (argc != 2)
        return 2;
    address.sin_port = htons(atoi(argv[1]));
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 128))
        return 2;
    epoll_ctl(poller, EPOLL_CTL_ADD, listener, &event);
    for (;;) {
        int count = epoll_wait(poller, events, 64, -1);
        for (int i = 0; i < count; i++) {
            struct connection *c = events[i].data.ptr;
            if (!c) {
                c = malloc(sizeof *c);
                c->used = 0;
                c->fd = accept(listener, NULL, NULL);
                setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
                struct epoll_event added = {.events = EPOLLIN, .data.ptr = c};
                epoll_ctl(poller, EPOLL_CTL_ADD, c->fd, &added);
            } else if (!serve(c)) {
                close(c->fd);
                free(c);
            }
        }
    }
}
