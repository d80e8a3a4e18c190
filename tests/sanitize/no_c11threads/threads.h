/* Stands in front of the C library's own where librdkafka is built for ThreadSanitizer, which does not see a thread that the C
 * library begins by itself (thrd_create) and crashes in its first function. librdkafka's configure finds no C11 threads then,
 * and takes pthread_create, which is watched. */
#error "C11 threads are not seen by ThreadSanitizer"
