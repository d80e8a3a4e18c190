/*
 * A C host that leaves every signal as the system gives it, SIGPIPE above all, and checks that the library leaves them
 * so too. tests/ffi.rs takes the broker away from it between two lines, so that connections break while it writes.
 *
 *     host BOOTSTRAP TOPIC        prints "half", waits for a line, prints the counts
 */
#define _POSIX_C_SOURCE 200809L
#include "fencepost.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SIGNALS = 65, HALF = 500 };

static struct sigaction before[SIGNALS];
static sigset_t mask_before;

static void read_signals(struct sigaction *into) {
    memset(into, 0, SIGNALS * sizeof *into);
    for (int number = 1; number < SIGNALS; number++)
        sigaction(number, NULL, &into[number]);
}

/* The handlers and this thread's mask are those of the beginning. */
static void check_signals(const char *when) {
    struct sigaction now[SIGNALS];
    sigset_t mask;
    read_signals(now);
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    for (int number = 1; number < SIGNALS; number++) {
        if (now[number].sa_handler != before[number].sa_handler || now[number].sa_flags != before[number].sa_flags ||
            sigismember(&mask, number) != sigismember(&mask_before, number)) {
            fprintf(stderr, "signal %d is not as it was, %s\n", number, when);
            exit(1);
        }
    }
}

static void check(FencepostStatus status, const char *what, const char *why) {
    if (status != FENCEPOST_STATUS_OK) {
        fprintf(stderr, "%s: %s %s\n", what, fencepost_status_name(status), why);
        exit(1);
    }
}

static int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void wait_ms(long ms) {
    const struct timespec moment = {.tv_sec = 0, .tv_nsec = ms * 1000000};
    nanosleep(&moment, NULL);
}

static void submit_half(FencepostIngress *ingress, int from, int64_t time_ms) {
    for (int index = from; index < from + HALF; index++) {
        char device[32], why[256];
        int len = snprintf(device, sizeof device, "veh-%d", index);
        FencepostTrigger trigger = {.device_id = device,
                                    .device_id_len = (size_t)len,
                                    .fence_id = "yard",
                                    .fence_id_len = 4,
                                    .event_time_ms = time_ms,
                                    .state = FENCEPOST_STATE_DWELL};
        FencepostAnswer answer;
        FencepostStatus status;
        do {
            status = fencepost_submit(ingress, &trigger, &answer, why, sizeof why);
            wait_ms(status == FENCEPOST_STATUS_OK ? 1 : 10);
        } while (status == FENCEPOST_STATUS_SHED_PARTITION || status == FENCEPOST_STATUS_SHED_QUEUE);
        check(status, "submit", why);
    }
}

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    /* What a parent made of SIGPIPE is inherited; a host that was started by a shell has the default. */
    signal(SIGPIPE, SIG_DFL);
    read_signals(before);
    pthread_sigmask(SIG_SETMASK, NULL, &mask_before);

    char toml[512], why[1024];
    int len = snprintf(toml, sizeof toml, "kafka.bootstrap = '%s'\ntopic.name = '%s'\n", argv[1], argv[2]);
    FencepostRouter *router;
    check(fencepost_start(toml, (size_t)len, &router, why, sizeof why), "start", why);
    check_signals("after the start");
    FencepostIngress *ingress;
    check(fencepost_ingress(router, &ingress), "ingress", "");

    int64_t time_ms = now_ms();
    submit_half(ingress, 0, time_ms);
    printf("half\n");
    fflush(stdout);
    /* The broker is on its way down: what is submitted now is written to connections that break. */
    submit_half(ingress, HALF, time_ms);
    if (getchar() == EOF)
        return 1;

    uint64_t settled = 0;
    for (int turn = 0; settled < 2 * HALF && turn < 6000; turn++) {
        check(fencepost_settled(ingress, &settled), "settled", "");
        wait_ms(10);
    }
    FencepostReport report;
    check(fencepost_shutdown(router, 30000, &report, sizeof report), "shutdown", "");
    check(fencepost_ingress_free(ingress), "ingress_free", "");
    check_signals("after the end");
    printf("settled %llu, delivered %llu, signals as before\n", (unsigned long long)settled,
           (unsigned long long)report.counts.delivered);
    return report.counts.delivered == 2 * HALF ? 0 : 1;
}
