/* The planted defects that lie in C, built as librdkafka is: a sanitizer that is blind there is found out here. */

#include <stdlib.h>
#include <string.h>

static volatile long unguarded;

void planted_race_in_c(void) {
    unguarded += 1;
}

int planted_use_after_free_in_c(void) {
    volatile char *place = malloc(64);
    if (!place)
        return -1;
    place[5] = 7;
    free((void *)place);
    return place[5];
}

int planted_uninitialised_in_c(void) {
    volatile char *place = malloc(64);
    int answer;
    if (!place)
        return -1;
    answer = place[5] > 100 ? 1 : 2;
    free((void *)place);
    return answer;
}

static char *volatile kept;

void planted_leak_in_c(void) {
    kept = malloc(4096);
    if (kept)
        memset(kept, 7, 4096);
    kept = NULL;
}

int clean_in_c(void) {
    volatile char *place = malloc(64);
    int answer;
    if (!place)
        return -1;
    place[5] = 7;
    answer = place[5];
    free((void *)place);
    return answer;
}
