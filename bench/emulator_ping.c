/* A blocking UDP ping-pong in C, so that the times are of the network and not of an interpreter.
 *   emulator_ping echo ADDRESS PORT                     until killed
 *   emulator_ping ask ADDRESS PORT COUNT SPACING_US WARM_MS
 *       prints one round-trip time in ns per line, with SPACING_US between reply and next request, without the first WARM_MS */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>

enum { BYTES = 64 };

static long long now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static int echo(int sock, struct sockaddr_in *own) {
    char text[2048];
    if (bind(sock, (struct sockaddr *)own, sizeof *own)) return perror("bind"), 1;
    for (;;) {
        struct sockaddr_in peer;
        socklen_t size = sizeof peer;
        ssize_t got = recvfrom(sock, text, sizeof text, 0, (struct sockaddr *)&peer, &size);
        if (got >= 0) sendto(sock, text, got, 0, (struct sockaddr *)&peer, size);
    }
}

static int ask(int sock, struct sockaddr_in *peer, int count, long spacing_us, long warm_ms) {
    struct timeval patience = {2, 0};
    struct timespec spacing = {spacing_us / 1000000, spacing_us % 1000000 * 1000};
    char text[BYTES] = {0}, answer[BYTES];
    if (connect(sock, (struct sockaddr *)peer, sizeof *peer)) return perror("connect"), 1;
    setsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    long long warm_ns = now_ns() + warm_ms * 1000000LL;
    for (int number = 0, kept = 0; kept < count; number++) {
        memcpy(text, &number, sizeof number);
        long long sent_ns = now_ns();
        send(sock, text, sizeof text, 0);
        int came = -1;
        while (came != number) {
            if (recv(sock, answer, sizeof answer, 0) < 0) return perror("expected an answer"), 1;
            memcpy(&came, answer, sizeof came);
        }
        if (sent_ns >= warm_ns) {
            printf("%lld\n", now_ns() - sent_ns);
            kept++;
        }
        if (spacing_us) nanosleep(&spacing, NULL);
    }
    return 0;
}

int main(int argc, char **argv) {
    struct sockaddr_in address = {.sin_family = AF_INET};
    int sock = socket(AF_INET, SOCK_DGRAM, 0);
    if (argc < 4 || inet_pton(AF_INET, argv[2], &address.sin_addr) != 1) return 2;
    address.sin_port = htons(atoi(argv[3]));
    if (!strcmp(argv[1], "echo")) return echo(sock, &address);
    return argc == 7 ? ask(sock, &address, atoi(argv[4]), atol(argv[5]), atol(argv[6])) : 2;
}
