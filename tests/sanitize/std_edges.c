/*
 * What ThreadSanitizer cannot see of Rust's standard library, said to it.
 *
 * The standard library comes without instrumentation. What of it is generic or inlined is compiled with our code and seen;
 * the slow paths below are not, and without them it would report races on data that a lock guards. script/sanitize finds
 * their names in the toolchain at hand and has the linker put these in front (--wrap). Each adds the edges that its function
 * promises, on the address it promises them for, and no other: nothing is taken from sight. Whether all that is needed is
 * here is what the clean run of planted.rs shows, whether too much, its planted race.
 *
 * Arguments are passed on as registers: none of these takes more than six, or one that is no integer or pointer.
 */

void __tsan_acquire(void *address);
void __tsan_release(void *address);

typedef unsigned long word;

#define NAME_(prefix, symbol) prefix##symbol
#define NAME(prefix, symbol) NAME_(prefix, symbol)
#define REAL(symbol) NAME(__real_, symbol)
#define WRAP(symbol) NAME(__wrap_, symbol)

/* Mutex::lock where somebody else holds it: what it guards was released by its last holder, inlined and seen. */
#ifdef MUTEX_LOCK_CONTENDED
word REAL(MUTEX_LOCK_CONTENDED)(word mutex);
word WRAP(MUTEX_LOCK_CONTENDED)(word mutex) {
    word answer = REAL(MUTEX_LOCK_CONTENDED)(mutex);
    __tsan_acquire((void *)mutex);
    return answer;
}
#endif

/* Condvar::wait and wait_timeout: the mutex is let go and taken again, inside. */
#define CONDVAR(symbol)                                                       \
    word REAL(symbol)(word condvar, word mutex, word seconds, word nanos);    \
    word WRAP(symbol)(word condvar, word mutex, word seconds, word nanos) {   \
        word answer;                                                          \
        __tsan_release((void *)mutex);                                        \
        answer = REAL(symbol)(condvar, mutex, seconds, nanos);                \
        __tsan_acquire((void *)mutex);                                        \
        return answer;                                                        \
    }
#ifdef CONDVAR_WAIT
CONDVAR(CONDVAR_WAIT)
#endif
#ifdef CONDVAR_WAIT_TIMEOUT
CONDVAR(CONDVAR_WAIT_TIMEOUT)
#endif

/* Once::call: who comes later sees what the first one wrote. */
#ifdef ONCE_CALL
word REAL(ONCE_CALL)(word once, word b, word c, word d, word e, word f);
word WRAP(ONCE_CALL)(word once, word b, word c, word d, word e, word f) {
    word answer = REAL(ONCE_CALL)(once, b, c, d, e, f);
    __tsan_acquire((void *)once);
    __tsan_release((void *)once);
    return answer;
}
#endif

/*
 * The end of a scoped thread: the scope's end waits for the count and sees all that the thread did. The count is one of the
 * first words; which one is the compiler's choice.
 */
#ifdef SCOPE_DECREMENT
word REAL(SCOPE_DECREMENT)(word scope, word panicked);
word WRAP(SCOPE_DECREMENT)(word scope, word panicked) {
    __tsan_release((void *)scope);
    __tsan_release((void *)(scope + sizeof(word)));
    __tsan_release((void *)(scope + 2 * sizeof(word)));
    return REAL(SCOPE_DECREMENT)(scope, panicked);
}
#endif
