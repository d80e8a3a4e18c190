/*
 * fencepost delivers geofence triggers to Apache Kafka: in order per device, deduplicated, nothing lost in
 * silence. docs/embedding.md says who owns what and which thread may call what; examples/c is a whole host.
 *
 * Generated from src/ffi; write it anew with FENCEPOST_BLESS=1 cargo test --features ffi --test ffi header
 */

#ifndef FENCEPOST_H
#define FENCEPOST_H

#include <stddef.h>
#include <stdint.h>

/**
 * What became of a call.
 */
enum FencepostStatus
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * Done; for a submit: queued.
     */
    FENCEPOST_STATUS_OK = 0,
    /**
     * Not queued: the queue is too full for the trigger's priority. Try again later, or let it go.
     */
    FENCEPOST_STATUS_SHED_QUEUE = 1,
    /**
     * Not queued: its partition is blocked, since the broker does not keep up or is away. Try again later.
     */
    FENCEPOST_STATUS_SHED_PARTITION = 2,
    /**
     * Not queued: too many triggers of this ingress are unsettled. Wait until the watermark moves.
     */
    FENCEPOST_STATUS_SHED_WINDOW = 3,
    /**
     * Not queued: the trigger breaks a rule (see FencepostReason). Trying again cannot help.
     */
    FENCEPOST_STATUS_REJECTED = 4,
    /**
     * Not queued: the router was shut down.
     */
    FENCEPOST_STATUS_CLOSED_STOPPING = 5,
    /**
     * Not queued: the router failed. Shut it down; its log says why.
     */
    FENCEPOST_STATUS_CLOSED_FAILED = 6,
    /**
     * Not queued: this process is a forked child; the router lives in the parent.
     */
    FENCEPOST_STATUS_CLOSED_FORKED = 7,
    /**
     * A pointer is null that may not be.
     */
    FENCEPOST_STATUS_NULL_ARGUMENT = 8,
    /**
     * The configuration is to blame; the text says what to mend.
     */
    FENCEPOST_STATUS_BAD_CONFIG = 9,
    /**
     * Something that is needed is not available: the broker, the topic, the state directory, a thread.
     */
    FENCEPOST_STATUS_UNAVAILABLE = 10,
    /**
     * All ingresses that the router may have are taken (queue.ingresses).
     */
    FENCEPOST_STATUS_NO_INGRESS_LEFT = 11,
    /**
     * No failed trigger is waiting to be taken.
     */
    FENCEPOST_STATUS_NOTHING = 12,
    /**
     * A mistake of the library. The router concerned takes nothing any more (FENCEPOST_STATUS_CLOSED_FAILED).
     */
    FENCEPOST_STATUS_INTERNAL = 13,
    /**
     * Another thread is inside a call on this ingress; or the log has an owner already. Nothing was done.
     */
    FENCEPOST_STATUS_IN_USE = 14,
    /**
     * An argument has a value that it may not have.
     */
    FENCEPOST_STATUS_BAD_ARGUMENT = 15,
    /**
     * Not queued: its partition is diverted, and the disk has no room for its priority. Try again later.
     */
    FENCEPOST_STATUS_SHED_SPACE = 16,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum FencepostStatus FencepostStatus;
#else
typedef uint32_t FencepostStatus;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * Which rule a rejected trigger breaks.
 */
enum FencepostReason
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * None: the trigger was not rejected.
     */
    FENCEPOST_REASON_NONE = 0,
    /**
     * The device id is not UTF-8 text.
     */
    FENCEPOST_REASON_DEVICE_ID_NOT_UTF8 = 1,
    /**
     * The fence id is not UTF-8 text.
     */
    FENCEPOST_REASON_FENCE_ID_NOT_UTF8 = 2,
    /**
     * The device id has no bytes.
     */
    FENCEPOST_REASON_EMPTY_DEVICE_ID = 3,
    /**
     * The device id has more than 256 bytes.
     */
    FENCEPOST_REASON_DEVICE_ID_TOO_LONG = 4,
    /**
     * The fence id has no bytes.
     */
    FENCEPOST_REASON_EMPTY_FENCE_ID = 5,
    /**
     * The fence id has more than 256 bytes.
     */
    FENCEPOST_REASON_FENCE_ID_TOO_LONG = 6,
    /**
     * There are more than 1024 bytes of attributes.
     */
    FENCEPOST_REASON_ATTRIBUTES_TOO_LONG = 7,
    /**
     * The event time is 0 or negative.
     */
    FENCEPOST_REASON_EVENT_TIME_NOT_POSITIVE = 8,
    /**
     * The event time is too far ahead of the clock (time.future_limit); perhaps it is in micro- or nanoseconds.
     */
    FENCEPOST_REASON_EVENT_TIME_IN_FUTURE = 9,
    /**
     * The event time is too old (time.past_limit); perhaps it is in seconds.
     */
    FENCEPOST_REASON_EVENT_TIME_TOO_OLD = 10,
    /**
     * The event time is in seconds.
     */
    FENCEPOST_REASON_EVENT_TIME_IN_SECONDS = 11,
    /**
     * The encoded trigger is larger than the topic takes.
     */
    FENCEPOST_REASON_FRAME_TOO_LARGE = 12,
    /**
     * The state is none of FencepostState.
     */
    FENCEPOST_REASON_UNKNOWN_STATE = 13,
    /**
     * The priority is none of FencepostPriority.
     */
    FENCEPOST_REASON_UNKNOWN_PRIORITY = 14,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum FencepostReason FencepostReason;
#else
typedef uint32_t FencepostReason;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * Whether to pace oneself.
 */
enum FencepostPressure
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * There is room.
     */
    FENCEPOST_PRESSURE_CLEAR = 0,
    /**
     * The queue fills (queue.pause_ratio): wait a moment before the next trigger.
     */
    FENCEPOST_PRESSURE_SLOW_DOWN = 1,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum FencepostPressure FencepostPressure;
#else
typedef uint32_t FencepostPressure;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * Why nothing durable took a trigger.
 */
enum FencepostFailedReason
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * The record is larger than the topic allows.
     */
    FENCEPOST_FAILED_REASON_TOO_LARGE = 1,
    /**
     * The broker refused this very record.
     */
    FENCEPOST_FAILED_REASON_REFUSED = 2,
    /**
     * Sending it would have put it behind a later trigger of its device.
     */
    FENCEPOST_FAILED_REASON_WOULD_REORDER = 3,
    /**
     * Its partition was away, and the dead letters did not take it.
     */
    FENCEPOST_FAILED_REASON_DIVERTED = 4,
    /**
     * Its fence is not on the list, and the dead letters did not take it.
     */
    FENCEPOST_FAILED_REASON_UNKNOWN_FENCE = 5,
    /**
     * A record on disk that this version cannot read.
     */
    FENCEPOST_FAILED_REASON_UNREADABLE = 6,
    /**
     * Its caller gave it to the dead letters, and they did not take it.
     */
    FENCEPOST_FAILED_REASON_BY_CALLER = 7,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum FencepostFailedReason FencepostFailedReason;
#else
typedef uint32_t FencepostFailedReason;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * What the device did.
 */
enum FencepostState
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * It came into the fence.
     */
    FENCEPOST_STATE_ENTER = 1,
    /**
     * It left the fence.
     */
    FENCEPOST_STATE_EXIT = 2,
    /**
     * It has been inside for as long as the evaluator calls a dwell.
     */
    FENCEPOST_STATE_DWELL = 3,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum FencepostState FencepostState;
#else
typedef uint32_t FencepostState;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * Who is shed first when a queue fills.
 */
enum FencepostPriority
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * The same as normal: what a structure filled with zeros says.
     */
    FENCEPOST_PRIORITY_DEFAULT = 0,
    /**
     * Shed first.
     */
    FENCEPOST_PRIORITY_LOW = 1,
    /**
     * Shed when the queue is nearly full.
     */
    FENCEPOST_PRIORITY_NORMAL = 2,
    /**
     * Shed only when the queue is full.
     */
    FENCEPOST_PRIORITY_HIGH = 3,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum FencepostPriority FencepostPriority;
#else
typedef uint32_t FencepostPriority;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * How important a line of the log is.
 */
enum FencepostLogLevel
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * Something is lost, or about to be.
     */
    FENCEPOST_LOG_LEVEL_ERROR = 1,
    /**
     * A person should know.
     */
    FENCEPOST_LOG_LEVEL_WARN = 2,
    /**
     * What happens, now and then.
     */
    FENCEPOST_LOG_LEVEL_INFO = 3,
    /**
     * For whoever looks for a fault.
     */
    FENCEPOST_LOG_LEVEL_DEBUG = 4,
    /**
     * Everything.
     */
    FENCEPOST_LOG_LEVEL_TRACE = 5,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum FencepostLogLevel FencepostLogLevel;
#else
typedef uint32_t FencepostLogLevel;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * One thread's way in. It may move between threads, and may outlive its router.
 */
typedef struct FencepostIngress FencepostIngress;

/**
 * A running router. Every thread may use it, until one of them shuts it down.
 */
typedef struct FencepostRouter FencepostRouter;

/**
 * Counters over all ingresses. The first ten add up:
 * accepted + recovered = delivered + deduplicated + dead_lettered + failed + corrupt + in_spill + in_flight + in_rings.
 * Later releases add fields at the end.
 */
typedef struct {
    /**
     * Queued by a submit.
     */
    uint64_t accepted;
    /**
     * Found on disk at start.
     */
    uint64_t recovered;
    /**
     * Acknowledged by the broker.
     */
    uint64_t delivered;
    /**
     * Repeats of such.
     */
    uint64_t deduplicated;
    /**
     * Durable in the dead-letter topic.
     */
    uint64_t dead_lettered;
    /**
     * Handed back by fencepost_take_failed.
     */
    uint64_t failed;
    /**
     * Settled in a record that the disk lost later.
     */
    uint64_t corrupt;
    /**
     * Settled on disk, to be sent.
     */
    uint64_t in_spill;
    /**
     * In a shard: waiting, at the broker, or repeats of such.
     */
    uint64_t in_flight;
    /**
     * Not taken by a shard yet.
     */
    uint64_t in_rings;
    /**
     * Not queued for want of room; never part of the sum.
     */
    uint64_t shed;
    /**
     * Not queued for breaking a rule; never part of the sum.
     */
    uint64_t rejected;
    /**
     * Answered with FENCEPOST_PRESSURE_SLOW_DOWN.
     */
    uint64_t slowed;
    /**
     * Acknowledged after publish.timeout.
     */
    uint64_t late;
    /**
     * Batches the broker refused.
     */
    uint64_t refused_batches;
    /**
     * Times a partition's breaker opened.
     */
    uint64_t breakers_opened;
    /**
     * Failed, since sending them would have reordered their device.
     */
    uint64_t would_reorder;
    /**
     * Sent again although they may be in the log already.
     */
    uint64_t uncertain;
    /**
     * Producer handles replaced.
     */
    uint64_t producer_rebuilds;
    /**
     * Errors of the client library that are not about one frame.
     */
    uint64_t client_errors;
    /**
     * Keys forgotten before their time, for want of room (dedup.capacity).
     */
    uint64_t dedup_evicted_early;
    /**
     * Keys remembered now.
     */
    uint64_t dedup_keys;
    /**
     * Settled by a record on disk that was their only copy.
     */
    uint64_t spilled;
    /**
     * Records that came back from the disk.
     */
    uint64_t drained;
} FencepostCounts;

/**
 * What a stopped router says. Later releases add fields at the end.
 */
typedef struct {
    /**
     * Triggers that nothing durable has: in_flight + in_rings. 0 after a clean stop.
     */
    uint64_t unsettled;
    /**
     * Shards whose thread did not end in time, or panicked; the counters may be off then.
     */
    uint64_t lost_shards;
    /**
     * 1 when the counters add up.
     */
    uint64_t adds_up;
    /**
     * The counters, exact.
     */
    FencepostCounts counts;
} FencepostReport;

/**
 * A trigger, borrowed for the time of a submit. Fill it with zeros first.
 */
typedef struct {
    /**
     * Who moved: 1 to 256 bytes of UTF-8 text. Any script, ':', '#' and NUL are legal; no NUL is needed at the end.
     */
    const char *device_id;
    /**
     * Its length in bytes.
     */
    size_t device_id_len;
    /**
     * Which fence: 1 to 256 bytes of UTF-8 text.
     */
    const char *fence_id;
    /**
     * Its length in bytes.
     */
    size_t fence_id_len;
    /**
     * Opaque bytes for the consumer; may be null when there are none.
     */
    const void *attributes;
    /**
     * Their number, at most 1024.
     */
    size_t attributes_len;
    /**
     * When it happened, in Unix milliseconds.
     */
    int64_t event_time_ms;
    /**
     * A FencepostState.
     */
    uint32_t state;
    /**
     * A FencepostPriority; 0 is normal.
     */
    uint32_t priority;
} FencepostTrigger;

/**
 * The answer to a submit.
 */
typedef struct {
    /**
     * The trigger's place in its ingress: 1, 2, 3, ...; 0 when it was not queued.
     */
    uint64_t seq;
    /**
     * OK, or why it was not queued.
     */
    FencepostStatus status;
    /**
     * Which rule it breaks, when it was rejected.
     */
    FencepostReason reason;
    /**
     * Whether to pace oneself, when it was queued.
     */
    FencepostPressure pressure;
    /**
     * 0.
     */
    uint32_t reserved;
} FencepostAnswer;

/**
 * A trigger that nothing durable would take.
 */
typedef struct {
    /**
     * Its place in its ingress.
     */
    uint64_t seq;
    /**
     * Why.
     */
    FencepostFailedReason reason;
    /**
     * The broker's error code, when the broker refused it; otherwise 0.
     */
    int32_t code;
} FencepostFailed;

/**
 * Gets a line of the log: a FencepostLogLevel and text that ends with NUL and is gone after the call. Called from the
 * router's threads and the caller's, several at a time; it must not throw, and must not call the library.
 */
typedef void (*FencepostLogCallback)(void *context, uint32_t level, const char *text);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * The name of a status, such as "shed_queue"; "unknown" for a number that is none. Static text; never null.
 */
const char *fencepost_status_name(uint32_t status);

/**
 * The name of a reason, such as "device_id_too_long"; "unknown" for a number that is none. Static text; never null.
 */
const char *fencepost_reason_name(uint32_t reason);

/**
 * The version of the library, such as "0.1.0". Static text; never null.
 */
const char *fencepost_version(void);

/**
 * Starts a router from the text of a configuration (docs/config.md) and returns once it is warm.
 *
 * OK: `*out` is the router, to be given to fencepost_shutdown; `why` holds its warnings, one a line.
 * BAD_CONFIG, UNAVAILABLE, INTERNAL: `*out` is null, `why` says what to mend, nothing is left running.
 * `why` may be null; its text ends with NUL and is cut to fit into `why_len` bytes.
 *
 * The caller's part:
 * `toml` has `toml_len` bytes, `why` has `why_len`, `out` may be written.
 */
FencepostStatus fencepost_start(const char *toml,
                                size_t toml_len,
                                FencepostRouter **out,
                                char *why,
                                size_t why_len);

/**
 * Starts a router from a configuration file; like fencepost_start.
 *
 * The caller's part:
 * `path` ends with NUL, `why` has `why_len` bytes, `out` may be written.
 */
FencepostStatus fencepost_start_file(const char *path, FencepostRouter **out, char *why, size_t why_len);

/**
 * OK while the router works; CLOSED_FAILED once it failed: then shut it down.
 *
 * The caller's part:
 * `router` is null or running.
 */
FencepostStatus fencepost_health(const FencepostRouter *router);

/**
 * The counters now; they may be off by what moves meanwhile. `out_size` is sizeof(FencepostCounts) as the caller
 * knows it: a caller and a library of different releases understand one another.
 *
 * The caller's part:
 * `router` is null or running, `out` may be written for `out_size` bytes.
 */
FencepostStatus fencepost_counts(const FencepostRouter *router,
                                 FencepostCounts *out,
                                 size_t out_size);

/**
 * Takes an ingress, to be given to fencepost_ingress_free. NO_INGRESS_LEFT: `*out` is null; raise queue.ingresses.
 *
 * The caller's part:
 * `router` is null or running, `out` may be written.
 */
FencepostStatus fencepost_ingress(const FencepostRouter *router,
                                  FencepostIngress **out);

/**
 * Stops the router: refuses new triggers, delivers what was accepted for as long as `limit_ms`, and returns at the
 * latest a second after it. The router is freed, whatever the answer; no other thread may be using it. Its ingresses
 * stay, answer CLOSED_STOPPING, and are freed by their owners.
 *
 * OK: everything that was accepted is settled and every thread ended. UNAVAILABLE: not everything; the report says
 * what is missing. `out` may be null. `out_size` is sizeof(FencepostReport) as the caller knows it.
 *
 * The caller's part:
 * `router` is null or running and not used afterwards; `out` is null or may be written for `out_size` bytes.
 */
FencepostStatus fencepost_shutdown(FencepostRouter *router,
                                   uint64_t limit_ms,
                                   FencepostReport *out,
                                   size_t out_size);

/**
 * Offers a trigger. The answer is there at once, whatever the state of Kafka; nothing of the trigger is kept by
 * reference. `*out` is the answer, and the function returns its status. `why`, when it is not null, gets the text of a
 * refusal: it ends with NUL and is cut to fit into `why_len` bytes.
 *
 * The caller's part:
 * `ingress` is null or not freed; `trigger` and what it points to may be read; `out` may be written; `why` is null or
 * has `why_len` bytes.
 */
FencepostStatus fencepost_submit(FencepostIngress *ingress,
                                 const FencepostTrigger *trigger,
                                 FencepostAnswer *out,
                                 char *why,
                                 size_t why_len);

/**
 * Offers `count` triggers in order; `answers[i]` is the answer to `triggers[i]`. A refusal of one says nothing of the
 * next. Returns OK when all were queued, otherwise the status of the first that was not. After IN_USE and INTERNAL
 * every answer that is not known has that status. `count` 0 is OK.
 *
 * The caller's part:
 * `ingress` is null or not freed; `triggers` has `count` elements, which may be read with what they point to; `answers`
 * has room for `count`.
 */
FencepostStatus fencepost_submit_batch(FencepostIngress *ingress,
                                       const FencepostTrigger *triggers,
                                       size_t count,
                                       FencepostAnswer *answers);

/**
 * Up to which seq of this ingress everything is settled: acknowledged by the broker, a repeat of such a one, or handed
 * back by fencepost_take_failed. A source commits its own position up to here and no further.
 *
 * The caller's part:
 * `ingress` is null or not freed; `out` may be written.
 */
FencepostStatus fencepost_settled(FencepostIngress *ingress,
                                  uint64_t *out);

/**
 * Takes the next trigger that nothing durable would take; NOTHING when there is none. The watermark passes it only
 * after this call. `why`, when it is not null, gets the reason as text, as in fencepost_submit.
 *
 * The caller's part:
 * `ingress` is null or not freed; `out` may be written; `why` is null or has `why_len` bytes.
 */
FencepostStatus fencepost_take_failed(FencepostIngress *ingress,
                                      FencepostFailed *out,
                                      char *why,
                                      size_t why_len);

/**
 * Gives an ingress back; what it accepted stays accepted. IN_USE: another thread is inside a call, nothing was freed.
 *
 * The caller's part:
 * `ingress` is null or not freed, and not used after OK or INTERNAL.
 */
FencepostStatus fencepost_ingress_free(FencepostIngress *ingress);

/**
 * Sends the log to the host from now on, once in a process, best before the first start: lines of `level_max`
 * (a FencepostLogLevel) and more important ones. `context` is handed to each call and must live as long as the
 * process. IN_USE: the log has an owner. Without this call nothing is logged.
 *
 * The caller's part:
 * `callback` may be called with `context` from every thread until the process ends.
 */
FencepostStatus fencepost_log_to(FencepostLogCallback callback,
                                 void *context,
                                 uint32_t level_max);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FENCEPOST_H */
