/* Tells callgrind where one piece of work begins and ends; outside of it, these do nothing. */
#include <valgrind/callgrind.h>

void work_begins(void) {
    CALLGRIND_START_INSTRUMENTATION;
    CALLGRIND_ZERO_STATS;
}

void work_ended(const char *name) {
    CALLGRIND_DUMP_STATS_AT(name);
    CALLGRIND_STOP_INSTRUMENTATION;
}

/* Between these two, what a driver does for the other end is not counted. */
void counting_pauses(void) { CALLGRIND_TOGGLE_COLLECT; }

void counting_goes_on(void) { CALLGRIND_TOGGLE_COLLECT; }
