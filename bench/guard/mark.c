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
