/*
 * An evaluator in C that embeds the router: submits a few triggers, paces itself when told to, waits until all of them
 * are settled, and stops. How to build it is in README.md beside this file.
 *
 *     ./embed 127.0.0.1:9092 geofence-triggers
 *
 * Exit code: 0 everything was delivered; 1 something was not; 2 usage or configuration; 3 Kafka is not available.
 */
#define _POSIX_C_SOURCE 200809L
#include "fencepost.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* The log comes from several threads at a time; one fprintf is one line. */
static void print_log(void *context, uint32_t level, const char *text) {
    static const char *const names[] = {"?", "error", "warn", "info", "debug", "trace"};
    fprintf((FILE *)context, "fencepost %s: %s\n", names[level <= 5 ? level : 0], text);
}

static void wait_a_moment(void) {
    const struct timespec moment = {.tv_sec = 0, .tv_nsec = 1000000};
    nanosleep(&moment, NULL);
}

static int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Submits one trigger, again while there is no room for it. Returns its place in the ingress, or 0. */
static uint64_t submit(FencepostIngress *ingress, const char *device, uint32_t state) {
    static const char fence[] = "depot:north";
    FencepostTrigger trigger = {
        .device_id = device,
        .device_id_len = strlen(device),
        .fence_id = fence,
        .fence_id_len = sizeof fence - 1,
        .event_time_ms = now_ms(),
        .state = state,
    };
    for (;;) {
        FencepostAnswer answer;
        char why[256];
        switch (fencepost_submit(ingress, &trigger, &answer, why, sizeof why)) {
        case FENCEPOST_STATUS_OK:
            if (answer.pressure == FENCEPOST_PRESSURE_SLOW_DOWN)
                wait_a_moment();
            return answer.seq;
        case FENCEPOST_STATUS_SHED_QUEUE:
        case FENCEPOST_STATUS_SHED_PARTITION:
        case FENCEPOST_STATUS_SHED_WINDOW:
            /* Still ours: try again a moment later, or let it go and know it. */
            wait_a_moment();
            break;
        default:
            fprintf(stderr, "%s was not taken: %s\n", device, why);
            return 0;
        }
    }
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: %s BOOTSTRAP TOPIC\n", argv[0]);
        return 2;
    }
    char toml[1024];
    int toml_len =
        snprintf(toml, sizeof toml, "kafka.bootstrap = '%s'\ntopic.name = '%s'\ntopic.create = true\n", argv[1], argv[2]);
    if (toml_len < 0 || (size_t)toml_len >= sizeof toml) {
        fprintf(stderr, "the arguments are too long\n");
        return 2;
    }
    fencepost_log_to(print_log, stderr, FENCEPOST_LOG_LEVEL_WARN);
    fprintf(stderr, "fencepost %s\n", fencepost_version());

    /* Returns once the producers are warm: the first trigger is as fast as the millionth. */
    FencepostRouter *router;
    char why[4096];
    FencepostStatus status = fencepost_start(toml, (size_t)toml_len, &router, why, sizeof why);
    if (status != FENCEPOST_STATUS_OK) {
        fprintf(stderr, "%s: %s\n", fencepost_status_name(status), why);
        return status == FENCEPOST_STATUS_BAD_CONFIG ? 2 : 3;
    }
    if (why[0] != '\0')
        fprintf(stderr, "warning: %s\n", why);

    /* One ingress per evaluator thread. */
    FencepostIngress *ingress;
    status = fencepost_ingress(router, &ingress);
    uint64_t last = 0;
    if (status == FENCEPOST_STATUS_OK) {
        uint64_t seqs[] = {
            submit(ingress, "veh-1", FENCEPOST_STATE_ENTER),
            submit(ingress, "veh-2", FENCEPOST_STATE_ENTER),
            submit(ingress, "veh-1", FENCEPOST_STATE_EXIT),
        };
        for (size_t i = 0; i < sizeof seqs / sizeof seqs[0]; i++)
            last = seqs[i] > last ? seqs[i] : last;

        /* Settled is durable: a source commits its own position up to here and no further. */
        uint64_t settled = 0;
        while (fencepost_settled(ingress, &settled) == FENCEPOST_STATUS_OK && settled < last &&
               fencepost_health(router) == FENCEPOST_STATUS_OK) {
            FencepostFailed failed;
            while (fencepost_take_failed(ingress, &failed, why, sizeof why) == FENCEPOST_STATUS_OK)
                fprintf(stderr, "trigger %llu was not delivered: %s\n", (unsigned long long)failed.seq, why);
            wait_a_moment();
        }
        fencepost_ingress_free(ingress);
    } else {
        fprintf(stderr, "no ingress: %s\n", fencepost_status_name(status));
    }

    FencepostReport report;
    status = fencepost_shutdown(router, 10000, &report, sizeof report);
    if (status != FENCEPOST_STATUS_OK && status != FENCEPOST_STATUS_UNAVAILABLE) {
        fprintf(stderr, "shutdown: %s\n", fencepost_status_name(status));
        return 1;
    }
    printf("accepted %llu, delivered %llu, deduplicated %llu, failed %llu, unsettled %llu\n",
           (unsigned long long)report.counts.accepted, (unsigned long long)report.counts.delivered,
           (unsigned long long)report.counts.deduplicated, (unsigned long long)report.counts.failed,
           (unsigned long long)report.unsettled);
    return status == FENCEPOST_STATUS_OK && report.counts.failed == 0 && report.counts.accepted == 3 ? 0 : 1;
}
