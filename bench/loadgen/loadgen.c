/*
 * loadgen - a cheap MQTT load generator: one file, one thread, epoll, libc only;
 * with -DTLS and OpenSSL (-lssl -lcrypto) it can do the same over TLS.
 *
 *   build:  cc -O2 -Wall -Wextra -o loadgen loadgen.c   (`python -m bench` does it)
 *   use:    ./loadgen --mode MODE [--host 127.0.0.1] [--port 1883] [options]
 *
 * It speaks raw MQTT 3.1.1 (--v5: MQTT 5) and is made to cost far less CPU than
 * any broker, so that the broker is what is measured: packets are encoded once
 * and sent many to a send(), the receive side parses in place out of one large
 * recv() buffer, acknowledgements leave batched, and nothing is allocated while
 * a measurement runs.  Every message carries a CLOCK_MONOTONIC time stamp, its
 * publisher's number and a sequence number, so payloads are at least 16 bytes.
 *
 * Modes (each prints one line of JSON; the keys are explained at report()):
 *
 *   fleet     --pubs P devices, each of which sends one message at a time, at a total
 *             --rate; a device's next message waits for the acknowledgement of its last
 *             one. The devices send in turn, each message at a random moment of its own
 *             1/rate of a second, with payloads from 20 to 2048 bytes (their logarithm
 *             is uniform) on topics fleet/<site>/<model>/<device>/<measure>.
 *             One message in eight is retained, and one has QoS 0 in place of --qos.
 *             Each message goes to three of --subs S subscribers: one for its site, one for its
 *             model, one for its measure; to one subscriber of everything; and to one of four
 *             members of a shared group that work through everything.  The receivers acknowledge.  A fleet runs for
 *             long, so the first second, at 5000 messages/s, is not measured: brokers may
 *             remember who gets what, and most of the 4 topics of each device came by then.
 *   stream    --pubs P publishers, each with its own topic and one subscriber.
 *             QoS 0: as fast as TCP takes it (or at most --lag N undelivered);
 *             QoS 1/2: at most --window W unacknowledged per publisher.
 *             --mixed: publisher i has QoS i mod 3 and sizes from 16 to 4096 bytes.
 *             --spread N: each publisher draws from N topics, its subscriber has '#'.
 *             --churn N: one more connection subscribes and unsubscribes, in turn, N
 *             times a second, to filters with a '+' that match nothing.
 *   fanout    one publisher, --subs S subscribers of one topic; --rate R paces it.
 *             last_p50_us is from the publish to the last subscriber's delivery: of
 *             every message with --lag 1, else of those that were alone under way.
 *   fanin     --pubs P publishers to devices/<i>/temp, one subscriber of
 *             devices/+/temp, at a fixed total --rate.  --sweep instead looks for
 *             the highest rate with nothing lost and p99 below --p99-limit.
 *   flood     --pubs P publishers, which send as fast as TCP and their --window take it, to flood/<k>/<i>, and
 *             --subs S subscribers of flood/<k>/#, k = i mod S.  --mixed: publisher i has QoS i mod 2.  The report
 *             has what became of the messages of QoS 1 and 2: acknowledged, refused (0x80 and above), received.
 *   wild      --filters F filters (60 % exact, 30 % '+', 10 % '#') over --subs S
 *             connections, --pubs P publishers to random topics.  The filters are
 *             laid out so that each message matches exactly one of them.
 *   connect   opens --conns N connections, at most --concurrency C at a time,
 *             holds them, and reports the broker's memory per connection.  --resume
 *             (with --tls) makes all of them resume the TLS session of one before.  --retry S
 *             lets who is refused or cut off come again after S/2 to 3S/2 seconds, as devices do.
 *             --stay: all stay connected, after the report, until standard input ends.
 *   pingpong  one message at a time: stream with one pair and --lag 1.
 *   durable   --pubs P publishers whose messages wait for one offline session; latencies
 *             are from the write to the PUBACK.  --warm S seconds are not measured.  The
 *             rate is that of the acknowledgements, until the last of them.
 *   sessions  --conns N persistent sessions with a subscription each, which then go.
 *   restart   waits until the broker answers a CONNECT; --since T, in nanoseconds of
 *             CLOCK_MONOTONIC, says when its process began.  With --count N it then
 *             receives as many messages as the session of `durable`.
 *   slow      fanout three times: with S-1 readers, with those and one that never
 *             reads, and without it again, for machines get slower and faster by
 *             themselves.  reader_ratio is the second rate over the mean of the others.
 *
 * --tls: over TLS, 1.3 where the broker can; who the broker is, is not checked.
 * --password W: log in as user0, user1 ... of --users N, in turn, with that password.
 * SIGUSR1 ends a part of a paced run: the report has the figures of each in "parts".  SIGUSR2 ends the run.
 * --props (with --v5): each PUBLISH with an expiry, a content type, a user property.
 *
 * --raw puts no broker there but a forked child that only read()s and send()s the
 * same bytes: the limit that TCP on this machine sets (stream, fanout, fanin, pingpong).
 *
 * Times are open loop in the paced modes: a message's stamp is the moment it was
 * due, not the moment it was sent, so a stalled generator cannot hide latency.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#ifdef TLS
#include <openssl/err.h>
#include <openssl/ssl.h>
#endif

/* ------------------------------------------------------------------ options */

static struct {
    const char *mode, *host, *label, *password;
    int port, users, pubs, subs, qos, window, conns, concurrency, filters, topics;
    int size, batch_bytes, sndbuf;
    int spread;
    bool v5, raw, sweep, spin, stay, tls, resume, props, mixed;
    uint64_t count, lag, since;
    double secs, drain, idle, rate, hold, retry, p99_limit_us, setup_limit, churn, warm;
    int pids[64], npids;
} opt = {
    .mode = "stream", .host = "127.0.0.1", .label = "", .port = 1883,
    .users = 1, .pubs = 1, .subs = 1, .window = 100, .conns = 1000, .concurrency = 100,
    .filters = 100000, .topics = 10000, .size = 16, .batch_bytes = 32768,
    .sndbuf = 131072, .secs = 2, .drain = 5, .idle = 2, .hold = 1, .p99_limit_us = 50000,
    .setup_limit = 60,
};

/* -------------------------------------------------------------------- helpers */

#define SEC 1000000000ull
enum { STAMPS = 4096, STAMP_SIZE = 16, RECV_SIZE = 512 * 1024, MAX_EVENTS = 1024 };

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * SEC + (uint64_t)t.tv_nsec;
}

/* Ends the run with a line that a driver can read as easily as a result. */
static void die(const char *fmt, ...) {
    char msg[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    for (char *c = msg; *c; c++)
        if (*c == '"' || *c == '\\' || (unsigned char)*c < 32) *c = '\'';
    printf("{\"mode\":\"%s\",\"label\":\"%s\",\"error\":\"%s\"}\n", opt.mode, opt.label, msg);
    fflush(stdout);
    exit(1);
}

static void *xalloc(size_t n) {
    void *p = calloc(1, n);
    if (!p) die("out of memory");
    return p;
}

static double own_cpu_secs(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)u.ru_utime.tv_sec + (double)u.ru_stime.tv_sec
         + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

/* CPU seconds (user and system, all threads) of the broker's processes: what /proc/PID/stat says in ticks. */
static double broker_cpu_secs(void) {
    double total = 0;
    for (int i = 0; i < opt.npids; i++) {
        clockid_t clock;
        struct timespec t;
        if (!clock_getcpuclockid(opt.pids[i], &clock) && !clock_gettime(clock, &t))
            total += (double)t.tv_sec + (double)t.tv_nsec / 1e9;
    }
    return total;
}

static uint64_t broker_rss_kb(void) {
    uint64_t total = 0;
    for (int i = 0; i < opt.npids; i++) {
        char path[64];
        unsigned long size, resident;
        snprintf(path, sizeof path, "/proc/%d/statm", opt.pids[i]);
        FILE *f = fopen(path, "r");
        if (!f) continue;
        if (fscanf(f, "%lu %lu", &size, &resident) == 2)
            total += resident * (uint64_t)sysconf(_SC_PAGESIZE) / 1024;
        fclose(f);
    }
    return total;
}

/* Log-linear histogram of nanoseconds: 64 buckets per power of two (1.6 %). */
enum { HIST_SUB = 6, HIST_LEN = (64 - HIST_SUB + 1) << HIST_SUB };
struct hist { uint64_t n, max, bucket[HIST_LEN]; };

static inline void hist_add(struct hist *h, uint64_t v) {
    unsigned i = (unsigned)v;
    if (v >= (1u << HIST_SUB)) {
        unsigned shift = 63u - (unsigned)__builtin_clzll(v) - HIST_SUB;
        i = (shift << HIST_SUB) + (unsigned)(v >> shift);
    }
    h->bucket[i]++;
    h->n++;
    if (v > h->max) h->max = v;
}

static double hist_us(const struct hist *h, double q) {
    uint64_t want = (uint64_t)((double)h->n * q), seen = 0;
    for (unsigned i = 0; i < HIST_LEN && h->n; i++) {
        if ((seen += h->bucket[i]) <= want) continue;
        unsigned shift = i < (2u << HIST_SUB) ? 0 : (i >> HIST_SUB) - 1;
        uint64_t low = (uint64_t)(i - (shift << HIST_SUB)) << shift;
        return (double)(low + ((1ull << shift) >> 1)) / 1e3;
    }
    return (double)h->max / 1e3;
}

/* ------------------------------------------------------------- MQTT encoding */

static size_t put_varint(uint8_t *p, uint32_t v) {
    size_t n = 0;
    do {
        p[n] = v & 127;
        v >>= 7;
        if (v) p[n] |= 128;
        n++;
    } while (v);
    return n;
}

static uint8_t *put16(uint8_t *p, unsigned v) {
    *p++ = (uint8_t)(v >> 8);
    *p++ = (uint8_t)v;
    return p;
}

static uint8_t *put_str(uint8_t *p, const char *s) {
    size_t n = strlen(s);
    p = put16(p, (unsigned)n);
    memcpy(p, s, n);
    return p + n;
}

static unsigned next_user;

static size_t encode_connect(uint8_t *out, const char *client_id, bool clean) {
    char user[32];
    uint8_t body[320], *p = put_str(body, "MQTT");
    *p++ = opt.v5 ? 5 : 4;
    *p++ = (uint8_t)((clean ? 0x02 : 0) | (opt.password ? 0xC0 : 0));
    p = put16(p, 300);                 /* keep alive */
    if (opt.v5) *p++ = 0;
    p = put_str(p, client_id);
    if (opt.password) {
        snprintf(user, sizeof user, "user%u", next_user++ % (unsigned)opt.users);
        p = put_str(put_str(p, user), opt.password);
    }
    size_t n = (size_t)(p - body);
    out[0] = 0x10;
    size_t h = 1 + put_varint(out + 1, (uint32_t)n);
    memcpy(out + h, body, n);
    return h + n;
}

/* One encoded PUBLISH and where in it the fields lie that change per message. */
struct packet { uint8_t *bytes; uint32_t len, id_off, stamp_off; };

static struct packet encode_publish(const char *topic, int size, int qos, uint32_t publisher) {
    static const uint8_t props[] = "\x02\0\0\x0e\x10" "\x03\0\x10" "application/json" "\x26\0\x05" "trace" "\0\x10" "4bf92f3577b34da6";
    uint32_t nprops = opt.props ? sizeof props - 1 : 0;
    uint32_t body = 2 + (uint32_t)strlen(topic) + (qos ? 2 : 0) + (opt.v5 ? 1 + nprops : 0) + (uint32_t)size;
    struct packet k = { .bytes = xalloc(body + 5) };
    k.bytes[0] = (uint8_t)(0x30 | qos << 1);
    uint8_t *p = put_str(k.bytes + 1 + put_varint(k.bytes + 1, body), topic);
    if (qos) { k.id_off = (uint32_t)(p - k.bytes); p += 2; }
    if (opt.v5) {
        *p++ = (uint8_t)nprops;
        memcpy(p, props, nprops);
        p += nprops;
    }
    k.stamp_off = (uint32_t)(p - k.bytes);
    memset(p, 'x', (size_t)size);
    memcpy(p + 8, &publisher, 4);
    k.len = k.stamp_off + (uint32_t)size;
    return k;
}

/* ---------------------------------------------------------------- connections */

struct conn {
    int fd;
    void *tls;                          /* its SSL, if it has one */
    bool dead, want_out, deaf;          /* deaf: a subscriber that never reads */
    bool introduced;                    /* connect mode: its CONNECT is sent */
    uint8_t *part;                      /* an incomplete packet kept for the next recv() */
    uint32_t part_len, part_cap;
    uint8_t *ack;                       /* acknowledgements not yet sent */
    uint32_t ack_off, ack_len, ack_cap;
    uint32_t expect_seq;                /* what a single source's next message must be */
    uint64_t received;
    /* publishers only: */
    uint32_t number, seq, inflight;
    uint16_t next_id;
    uint64_t *stamps;                   /* when each message was written, where its PUBACK is timed */
    struct packet *packets;             /* one packet, or a pool to draw from */
    uint32_t npackets;
    uint8_t *batch;                     /* packets laid end to end */
    uint32_t batch_off, batch_len, batch_cap, batch_slots;
};

static struct {                         /* what one measured phase counts */
    uint64_t sent, received, stale, dup, reordered, disconnects, rss_peak_kb, acknowledged, refused, received_acked;
    uint64_t start, last_tx, last_rx, last_stamp, fan, churned, before;
    double own_cpu, broker_cpu, phase;
    const char *drained;
    struct hist lat, last, part;
} st;

enum { MAX_PARTS = 32 };
static struct { uint64_t n; double p50, p99, max; } parts[MAX_PARTS];
static int nparts;
static volatile sig_atomic_t part_ends, run_ends;   /* SIGUSR1, SIGUSR2 */

static void on_signal(int number) { if (number == SIGUSR1) part_ends = 1; else run_ends = 1; }

static void end_part(void) {
    part_ends = 0;
    if (nparts == MAX_PARTS) return;
    parts[nparts].n = st.part.n;
    parts[nparts].p50 = hist_us(&st.part, .5);
    parts[nparts].p99 = hist_us(&st.part, .99);
    parts[nparts++].max = (double)st.part.max / 1e3;
    memset(&st.part, 0, sizeof st.part);
}

static int ep = -1;
static struct conn *conns, *publishers, *subscribers, *churner;
static bool churn_waits;                /* for the answer to its last packet */
static int nconns, nsubs;
static uint8_t *rx;                     /* the one receive buffer */
static bool single_source;              /* check the order on each subscriber */
static bool jittered;                   /* pace: each message at a random moment of its interval */
static uint64_t rng = 88172645463325252ull;

static uint64_t random64(void) {
    rng ^= rng << 13; rng ^= rng >> 7; rng ^= rng << 17;
    return rng;
}

/* ------------------------------------------------------------------ TLS or not */

#ifdef TLS
static SSL_CTX *tls_context;
static SSL_SESSION *tls_session;        /* the first that the broker gave */

static int tls_new_session(SSL *ssl, SSL_SESSION *session) {
    (void)ssl;
    if (tls_session) return 0;
    tls_session = session;
    return 1;
}

static void tls_begin(void) {
    if (!(tls_context = SSL_CTX_new(TLS_client_method()))) die("tls: no context");
    SSL_CTX_set_mode(tls_context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_read_ahead(tls_context, 1);
    SSL_CTX_set_default_read_buffer_len(tls_context, 65536);
    SSL_CTX_set_session_cache_mode(tls_context, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
    SSL_CTX_sess_set_new_cb(tls_context, tls_new_session);
}

static void tls_wrap(struct conn *c, bool resume) {
    if (!(c->tls = SSL_new(tls_context)) || !SSL_set_fd(c->tls, c->fd)) die("tls: out of memory");
    if (resume && tls_session) {        /* a copy for each: OpenSSL uses up a session of TLS 1.3 */
        SSL_SESSION *copy = SSL_SESSION_dup(tls_session);
        SSL_set_session(c->tls, copy);
        SSL_SESSION_free(copy);
    }
    SSL_set_connect_state(c->tls);
}

/* What recv() and send() would have returned. */
static ssize_t tls_result(struct conn *c, int n) {
    if (n > 0) return n;
    int e = SSL_get_error(c->tls, n);
    ERR_clear_error();
    if (e == SSL_ERROR_ZERO_RETURN) return 0;
    errno = e == SSL_ERROR_WANT_READ || e == SSL_ERROR_WANT_WRITE ? EAGAIN : ECONNRESET;
    return -1;
}

static ssize_t tls_recv(struct conn *c, void *p, size_t n) {
    size_t got = 0;
    for (;;) {                          /* a record at a time, until there is none or no room */
        ssize_t k = tls_result(c, SSL_read(c->tls, (uint8_t *)p + got, (int)(n - got)));
        if (k <= 0) return got ? (ssize_t)got : k;
        got += (size_t)k;
        if (got == n || !SSL_has_pending(c->tls)) return (ssize_t)got;
    }
}

static ssize_t tls_send(struct conn *c, const void *p, size_t n) { return tls_result(c, SSL_write(c->tls, p, (int)n)); }
static ssize_t tls_handshake(struct conn *c) { return tls_result(c, SSL_do_handshake(c->tls)); }
static bool tls_pending(struct conn *c) { return c->tls && SSL_has_pending(c->tls); }
static bool tls_resumed(struct conn *c) { return SSL_session_reused(c->tls); }

static void tls_free(struct conn *c) {  /* as if it had said good-bye, else OpenSSL resumes the session no more */
    SSL_set_shutdown(c->tls, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
    SSL_free(c->tls);
    c->tls = NULL;
}
#else
static void tls_begin(void) { die("--tls: built without -DTLS"); }
static void tls_wrap(struct conn *c, bool resume) { (void)c; (void)resume; }
static ssize_t tls_recv(struct conn *c, void *p, size_t n) { (void)c; (void)p; (void)n; return -1; }
static ssize_t tls_send(struct conn *c, const void *p, size_t n) { (void)c; (void)p; (void)n; return -1; }
static ssize_t tls_handshake(struct conn *c) { (void)c; return -1; }
static bool tls_pending(struct conn *c) { (void)c; return false; }
static bool tls_resumed(struct conn *c) { (void)c; return false; }
static void tls_free(struct conn *c) { (void)c; }
#endif

static ssize_t io_recv(struct conn *c, void *p, size_t n, int flags) {
    return c->tls ? tls_recv(c, p, n) : recv(c->fd, p, n, flags);
}

static ssize_t io_send(struct conn *c, const void *p, size_t n, int flags) {
    return c->tls ? tls_send(c, p, n) : send(c->fd, p, n, flags | MSG_NOSIGNAL);
}

static void drop(struct conn *c) {
    if (c->dead) return;
    c->dead = true;
    st.disconnects++;
    if (c->tls) tls_free(c);
    close(c->fd);
}

static void watch(struct conn *c, bool out) {
    if (c->dead || c->want_out == out) return;
    struct epoll_event e = { .events = EPOLLIN | (out ? EPOLLOUT : 0), .data.ptr = c };
    epoll_ctl(ep, EPOLL_CTL_MOD, c->fd, &e);
    c->want_out = out;
}

static void queue_ack(struct conn *c, uint8_t type, const uint8_t *id) {
    if (c->ack_len + 4 > c->ack_cap) {
        c->ack_cap = c->ack_cap ? c->ack_cap * 2 : 1024;
        c->ack = realloc(c->ack, c->ack_cap);
        if (!c->ack) die("out of memory");
    }
    uint8_t *p = c->ack + c->ack_len;
    p[0] = type; p[1] = 2; p[2] = id[0]; p[3] = id[1];
    c->ack_len += 4;
}

/* Sends [*off, len) of buf.  True when all of it went out. */
static bool send_rest(struct conn *c, const uint8_t *buf, uint32_t *off, uint32_t len) {
    while (*off < len) {
        ssize_t n = io_send(c, buf + *off, len - *off, MSG_DONTWAIT);
        if (n < 0) {
            if (errno == EINTR) continue;
            if (errno == EAGAIN) watch(c, true);
            else drop(c);
            return false;
        }
        *off += (uint32_t)n;
    }
    return true;
}

/* Sends whatever waits: first the batch (a packet must not be cut), then acks. */
static bool flush(struct conn *c) {
    if (c->dead) return false;
    if (c->batch_off < c->batch_len && !send_rest(c, c->batch, &c->batch_off, c->batch_len)) return false;
    if (c->ack_off < c->ack_len && !send_rest(c, c->ack, &c->ack_off, c->ack_len)) return false;
    c->batch_off = c->batch_len = c->ack_off = c->ack_len = 0;
    watch(c, false);
    return true;
}

/* -------------------------------------------------------------- receive side */

static inline void take_publish(struct conn *c, uint8_t head, const uint8_t *p, const uint8_t *end, uint64_t now) {
    int qos = head >> 1 & 3;
    p += 2 + (p[0] << 8 | p[1]);
    if (qos) {
        queue_ack(c, qos == 1 ? 0x40 : 0x50, p);
        p += 2;
    }
    if (opt.v5) {                       /* properties: a length, and that many bytes */
        uint32_t n = 0, shift = 0;
        do n |= (uint32_t)(*p & 127) << shift, shift += 7; while (*p++ & 128 && p < end);
        p += n;
    }
    if (c == churner) return;
    if (end - p < STAMP_SIZE) die("a PUBLISH arrived that this program did not send");
    if (head & 8) st.dup++;
    uint64_t stamp;
    uint32_t seq;
    memcpy(&stamp, p, 8);
    memcpy(&seq, p + 12, 4);
    if (stamp < st.start) {             /* sent by an earlier run or phase */
        st.stale++;
        return;
    }
    hist_add(&st.lat, now > stamp ? now - stamp : 0);
    hist_add(&st.part, now > stamp ? now - stamp : 0);
    st.received++;
    st.received_acked += qos > 0;
    c->received++;
    if (single_source) {
        if (seq < c->expect_seq) st.reordered++;
        c->expect_seq = seq + 1;
    }
}

/* Takes every complete packet of [p, end); returns where the rest begins. */
static uint8_t *parse(struct conn *c, uint8_t *p, uint8_t *end, uint64_t now) {
    while (end - p >= 2) {
        uint32_t len = p[1], head = 2;
        if (len & 128) {                /* remaining length of more than a byte */
            uint32_t shift = 7;
            len &= 127;
            do {
                if (p + head >= end) return p;
                len |= (uint32_t)(p[head] & 127) << shift;
                shift += 7;
            } while (p[head++] & 128);
        }
        if ((size_t)(end - p) < (size_t)head + len) return p;
        uint8_t *body = p + head;
        switch (p[0] >> 4) {
        case 3: take_publish(c, p[0], body, body + len, now); break;
        case 5:                         /* PUBREC -> PUBREL; one that refuses the message ends it */
            if (len > 2 && body[2] >= 0x80) { st.refused++; if (c->inflight) c->inflight--; }
            else { st.acknowledged++; queue_ack(c, 0x62, body); }
            break;
        case 6: queue_ack(c, 0x70, body); break;                /* PUBREL -> PUBCOMP */
        case 4:                         /* PUBACK */
            if (len > 2 && body[2] >= 0x80) st.refused++;
            else st.acknowledged++;
            if (c->stamps) {
                hist_add(&st.lat, now - c->stamps[body[1] | (body[0] & ((STAMPS >> 8) - 1)) << 8]);
                st.received++;
            }                           /* fall through */
        case 7: if (c->inflight) c->inflight--; break;  /* PUBCOMP */
        case 9: case 11: churn_waits = false; st.churned++; break;
        default: break;
        }
        p = body + len;
    }
    return p;
}

static void read_once(struct conn *c) {
    memcpy(rx, c->part, c->part_len);
    ssize_t n = io_recv(c, rx + c->part_len, RECV_SIZE, MSG_DONTWAIT);
    if (n <= 0) {
        if (n == 0 || (errno != EAGAIN && errno != EINTR)) drop(c);
        return;
    }
    uint64_t before = st.received, now = now_ns();
    uint8_t *end = rx + c->part_len + n, *rest = parse(c, rx, end, now);
    c->part_len = (uint32_t)(end - rest);
    if (c->part_len > c->part_cap) {
        c->part_cap = c->part_len * 2;
        free(c->part);
        c->part = xalloc(c->part_cap);
    }
    memcpy(c->part, rest, c->part_len);
    if (st.received != before) {
        st.last_rx = now;
        if (st.fan > 1 && st.received == st.sent * st.fan) hist_add(&st.last, now > st.last_stamp ? now - st.last_stamp : 0);
    }
    if (c->ack_len && !c->want_out) flush(c);
}

static void on_readable(struct conn *c) {
    do read_once(c); while (!c->dead && tls_pending(c));
}

/* --------------------------------------------------------------- publish side */

/* Lays one more message into the publisher's batch. */
static inline void add_message(struct conn *c, uint64_t stamp) {
    const struct packet *k = c->packets;
    uint8_t *p = c->batch + c->batch_len;
    if (c->npackets > 1) {
        k += random64() % c->npackets;
        memcpy(p, k->bytes, k->len);
    }                                   /* else the slot already holds the packet */
    if (k->id_off) {
        if (++c->next_id == 0) c->next_id = 1;
        put16(p + k->id_off, c->next_id);
        c->inflight++;
        if (c->stamps) c->stamps[c->next_id & (STAMPS - 1)] = stamp;
    }
    memcpy(p + k->stamp_off, &stamp, 8);
    memcpy(p + k->stamp_off + 12, &c->seq, 4);
    c->seq++;
    st.last_stamp = stamp;
    c->batch_len += k->len;
    st.sent++;
}

/* Sends up to one batch of at most `most` messages; true when more could follow. */
static bool pump(struct conn *c, uint64_t most) {
    if (c->want_out || !flush(c)) return false;
    uint64_t n = c->batch_slots;
    if (c->packets->id_off) {
        uint64_t room = c->inflight < (uint32_t)opt.window ? (uint32_t)opt.window - c->inflight : 0;
        if (n > room) n = room;
    }
    if (n > most) n = most;
    if (!n) return false;
    uint64_t now = now_ns();
    for (uint64_t i = 0; i < n; i++) add_message(c, now);
    st.last_tx = now;
    return flush(c);
}

/* --------------------------------------------------------------------- set-up */

static uint64_t setup_deadline;

static int dial(bool blocking) {
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | (blocking ? 0 : SOCK_NONBLOCK), 0);
    if (fd < 0) die("socket: %s", strerror(errno));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    struct timeval tv = { .tv_sec = 10 };
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv);
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons((uint16_t)opt.port) };
    if (inet_pton(AF_INET, opt.host, &a.sin_addr) != 1) die("--host must be an IPv4 address");
    if (connect(fd, (struct sockaddr *)&a, sizeof a) && errno != EINPROGRESS) die("connect: %s", strerror(errno));
    return fd;
}

static void recv_exactly(struct conn *c, uint8_t *p, size_t n) {
    while (n) {
        ssize_t k = io_recv(c, p, n, 0);
        if (k <= 0) die("set-up: %s", k ? strerror(errno) : "the broker closed the connection");
        p += k; n -= (size_t)k;
    }
}

/* Reads one packet while the socket still blocks and checks what it is. */
static size_t expect(struct conn *c, int type, uint8_t *body, size_t cap) {
    uint8_t b;
    size_t len = 0;
    if (now_ns() > setup_deadline) die("set-up took longer than --setup-limit");
    recv_exactly(c, &b, 1);
    if (b >> 4 != type) die("set-up: packet type %d where %d was due", b >> 4, type);
    for (int shift = 0; ; shift += 7) {
        recv_exactly(c, &b, 1);
        len |= (size_t)(b & 127) << shift;
        if (!(b & 128)) break;
    }
    if (len > cap) die("set-up: a packet of %zu bytes", len);
    recv_exactly(c, body, len);
    return len;
}

static void send_all(struct conn *c, const uint8_t *p, size_t n) {
    while (n) {
        ssize_t k = io_send(c, p, n, 0);
        if (k <= 0) die("set-up: send: %s", strerror(errno));
        p += k; n -= (size_t)k;
    }
}

static struct conn *open_as(const char *id, bool clean) {
    struct conn *c = &conns[nconns++];
    uint8_t buf[2048];
    c->fd = dial(true);
    if (opt.tls) {
        tls_wrap(c, opt.resume);
        if (tls_handshake(c) != 1) die("set-up: TLS handshake failed");
    }
    send_all(c, buf, encode_connect(buf, id, clean));
    expect(c, 2, buf, sizeof buf);
    if (buf[1]) die("set-up: CONNECT refused with code %d", buf[1]);
    return c;
}

static struct conn *open_conn(void) {
    char id[32];
    snprintf(id, sizeof id, "lg%dx%d", (int)getpid(), nconns);
    return open_as(id, true);
}

/* Subscribes to n filters, up to 100 in each SUBSCRIBE. */
static void subscribe(struct conn *c, char **filters, int n, int qos) {
    uint8_t body[16384], out[16400], reply[1024];
    for (int done = 0, id = 1; done < n; id++) {
        uint8_t *p = put16(body, (unsigned)id);
        if (opt.v5) *p++ = 0;
        for (int k = 0; k < 100 && done < n && p - body < 16000; k++) {
            p = put_str(p, filters[done++]);
            *p++ = (uint8_t)qos;
        }
        out[0] = 0x82;
        size_t h = 1 + put_varint(out + 1, (uint32_t)(p - body));
        memcpy(out + h, body, (size_t)(p - body));
        send_all(c, out, h + (size_t)(p - body));
        size_t len = expect(c, 9, reply, sizeof reply);
        if (reply[len - 1] >= 0x80) die("set-up: SUBSCRIBE refused with code %d", reply[len - 1]);
    }
}

static void subscribe_one(struct conn *c, const char *fmt, int i) {
    char filter[64], *list = filter;
    snprintf(filter, sizeof filter, fmt, i);
    subscribe(c, &list, 1, opt.mixed ? i % 3 : opt.qos);
}

static void make_publisher(struct conn *c, int number, struct packet *packets, uint32_t n) {
    uint32_t len = 0;
    for (uint32_t i = 0; i < n; i++) if (packets[i].len > len) len = packets[i].len;
    c->number = (uint32_t)number;
    c->packets = packets;
    c->npackets = n;
    c->batch_slots = (uint32_t)opt.batch_bytes / len ? (uint32_t)opt.batch_bytes / len : 1;
    c->batch_cap = c->batch_slots * len;
    c->batch = xalloc(c->batch_cap);
    if (n == 1)
        for (uint32_t i = 0; i < c->batch_slots; i++) memcpy(c->batch + i * len, packets->bytes, len);
    setsockopt(c->fd, SOL_SOCKET, SO_SNDBUF, &opt.sndbuf, sizeof opt.sndbuf);
}

static void publisher_to(struct conn *c, int number, const char *fmt) {
    char topic[64];
    snprintf(topic, sizeof topic, fmt, number);
    static const int sizes[] = { 16, 64, 256, 1024, 4096 };
    int n = opt.spread ? opt.spread : opt.mixed ? 5 : 1;
    struct packet *k = xalloc((size_t)n * sizeof *k);
    for (int i = 0; i < n; i++) {
        if (opt.spread) snprintf(topic + strlen(topic), sizeof topic - strlen(topic), "/%d", i);
        k[i] = encode_publish(topic, opt.mixed ? sizes[i % 5] : opt.size, opt.mixed ? number % 3 : opt.qos, (uint32_t)number);
        snprintf(topic, sizeof topic, fmt, number);
    }
    make_publisher(c, number, k, (uint32_t)n);
}

static void alloc_conns(int n) {
    conns = xalloc((size_t)n * sizeof *conns);
    rx = xalloc(2 * RECV_SIZE + (1 << 20));
    ep = epoll_create1(0);
    setup_deadline = now_ns() + (uint64_t)(opt.setup_limit * 1e9);
}

/* The end of set-up: from here on everything is non-blocking and in the epoll. */
static void arm_now(void) {
    for (int i = 0; i < nconns; i++) {
        struct conn *c = &conns[i];
        if (c->deaf || c->dead) continue;
        fcntl(c->fd, F_SETFL, O_NONBLOCK);
        struct epoll_event e = { .events = EPOLLIN, .data.ptr = c };
        epoll_ctl(ep, EPOLL_CTL_ADD, c->fd, &e);
    }
}

static void arm_all(void) {
    arm_now();
    usleep(100000);                     /* let the broker finish its own set-up work */
}

static void say_goodbye(struct conn *c) {
    static const uint8_t disconnect[2] = { 0xE0, 0 };
    if (c->dead) return;
    if (io_send(c, disconnect, 2, MSG_DONTWAIT) < 0) { /* it is closed anyhow */ }
    close(c->fd);
    c->dead = true;
}

static void close_all(void) {
    for (int i = 0; i < nconns; i++) say_goodbye(&conns[i]);
}

/* ------------------------------------------------------------------- the loop */

static void wait_events(int64_t timeout_ns) {
    static struct epoll_event ev[MAX_EVENTS];
    if (opt.spin) timeout_ns = 0;
    struct timespec ts = { .tv_sec = timeout_ns / (int64_t)SEC, .tv_nsec = timeout_ns % (int64_t)SEC };
    int n = epoll_pwait2(ep, ev, MAX_EVENTS, &ts, NULL);
    if (n < 0 && errno != EINTR) die("epoll_pwait2 (needs Linux 5.11): %s", strerror(errno));
    for (int i = 0; i < n; i++) {
        struct conn *c = ev[i].data.ptr;
        if (!c->dead && ev[i].events & EPOLLOUT) flush(c);
        if (!c->dead && ev[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) on_readable(c);
    }
}

/* Publishes what has come due at `rate` a second, in turn over the publishers. */
static int64_t pace(struct conn *p, int npubs, double rate, uint64_t limit, uint64_t now) {
    static double jitter;
    while (st.sent < limit) {
        uint64_t due = st.start + (uint64_t)(((double)st.sent + jitter) * 1e9 / rate);
        if (due > now) return (int64_t)(due - now);
        struct conn *c = &p[st.sent % (uint64_t)npubs];
        if (c->dead) die("a publisher lost its connection");
        if (c->batch_len + c->packets->len > c->batch_cap
            || (c->packets->id_off && c->inflight >= (uint32_t)opt.window)) return (int64_t)1e6;
        add_message(c, due);
        st.last_tx = now;
        if (jittered) jitter = (double)(random64() >> 11) * 0x1p-53;
        if (!c->want_out) flush(c);
    }
    return (int64_t)1e8;
}

/* The churner's next packet, if it is time and the last one was answered; when to come back. */
static int64_t churn(uint64_t now) {
    static uint64_t turn;
    uint64_t due = st.start + (uint64_t)((double)st.churned * 1e9 / opt.churn);
    if (churn_waits || churner->dead) return (int64_t)1e8;
    if (due > now) return (int64_t)(due - now);
    uint8_t body[80], out[90], *p = put16(body, 1 + turn % 60000);
    char filter[64];
    snprintf(filter, sizeof filter, "stream/+/other/%d", (int)(turn / 2 % 1000));
    if (opt.v5) *p++ = 0;
    p = put_str(p, filter);
    if (turn % 2 == 0) *p++ = 0;
    out[0] = turn++ % 2 == 0 ? 0x82 : 0xA2;
    size_t h = 1 + put_varint(out + 1, (uint32_t)(p - body));
    memcpy(out + h, body, (size_t)(p - body));
    if (io_send(churner, out, h + (size_t)(p - body), 0) < 0) drop(churner);
    churn_waits = true;
    return (int64_t)1e8;
}

/*
 * One measured phase: publishes for secs seconds (or count messages), then drains
 * until all of `fan` deliveries per message are in, or nothing came for --idle
 * seconds ("idle": they are lost), or the drain limit ("limit": still coming).
 */
static void run(struct conn *p, int npubs, int fan, double rate, double secs, double drain) {
    memset(&st, 0, sizeof st);
    st.fan = (uint64_t)fan;
    for (int i = 0; i < nconns; i++) conns[i].received = 0;
    uint64_t limit = opt.count ? opt.count : UINT64_MAX, next_rss = 0;
    uint64_t ns = (uint64_t)(secs * 1e9), drain_ns = (uint64_t)(drain * 1e9);
    if (rate > 0 && (double)limit > rate * secs) limit = (uint64_t)(rate * secs);
    double own = own_cpu_secs(), broker = broker_cpu_secs();
    uint64_t now = st.start = st.last_tx = st.last_rx = now_ns(), stop = 0;
    bool sending = true, cold = opt.warm > 0;
    st.drained = "all";
    for (;;) {
        if (cold && now - st.start >= (uint64_t)(opt.warm * 1e9)) {    /* what was under way stays */
            cold = false;
            st.before = st.received;
            st.sent -= st.received;
            st.received = 0;
            memset(&st.lat, 0, sizeof st.lat);
            own = own_cpu_secs();
            broker = broker_cpu_secs();
            st.start = now;
        }
        bool more = false;
        int64_t wait = (int64_t)1e8;
        if (sending) {
            if (rate > 0) {
                wait = pace(p, npubs, rate, limit, now);
                if (wait < 0) wait = 0;
            } else {
                for (int i = 0; i < npubs && st.sent < limit; i++) {
                    uint64_t most = limit - st.sent, open = st.sent * (uint64_t)fan - st.received;
                    if (opt.lag) {
                        uint64_t room = open < opt.lag * (uint64_t)fan ? (opt.lag * (uint64_t)fan - open) / (uint64_t)fan : 0;
                        if (most > room) most = room;
                    }
                    more |= pump(&p[i], most);
                }
            }
            if (run_ends || st.sent >= limit || (!cold && now - st.start >= (rate > 0 ? ns + ns / 4 : ns))) {
                sending = false;
                stop = now;
            }
        } else {
            for (int i = 0; i < npubs; i++) if (p[i].batch_len && !p[i].want_out) flush(&p[i]);
            if (st.received >= st.sent * (uint64_t)fan) break;
            uint64_t last = st.last_rx > stop ? st.last_rx : stop;
            if (now - last > (uint64_t)(opt.idle * 1e9) && now > last) { st.drained = "idle"; break; }
            if (now - stop > drain_ns) { st.drained = "limit"; break; }
        }
        if (churner && sending) {
            int64_t next = churn(now);
            if (next < wait) wait = next;
        }
        wait_events(more ? 0 : wait);
        if (part_ends) end_part();
        now = now_ns();
        if (opt.npids && now >= next_rss) {
            uint64_t kb = broker_rss_kb();
            if (kb > st.rss_peak_kb) st.rss_peak_kb = kb;
            next_rss = now + SEC / 20;
        }
    }
    st.phase = (double)(now - st.start) / 1e9;
    st.own_cpu = own_cpu_secs() - own;
    st.broker_cpu = broker_cpu_secs() - broker;
}

/* After a phase that did not drain: takes what still comes, up to ten seconds. */
static void clear_backlog(void) {
    uint64_t now = now_ns(), end = now + 10 * SEC, quiet = now + SEC / 2, seen = st.received;
    while (now < end && now < quiet) {
        for (int i = 0; i < nconns; i++) if (conns[i].batch_len && !conns[i].want_out) flush(&conns[i]);
        wait_events((int64_t)1e8);
        now = now_ns();
        if (st.received != seen) quiet = now + SEC / 2;
        seen = st.received;
    }
}

/* --------------------------------------------------------------------- report */

static double elapsed(void) {
    uint64_t end = st.last_rx > st.last_tx ? st.last_rx : st.last_tx;
    return end > st.start ? (double)(end - st.start) / 1e9 : 1e-9;
}

static void report_parts(void) {
    if (nparts) end_part();
    for (int i = 0; i < nparts; i++)
        printf("%s{\"n\":%llu,\"p50_us\":%.1f,\"p99_us\":%.1f,\"max_us\":%.1f}", i ? "," : ",\"parts\":[",
               (unsigned long long)parts[i].n, parts[i].p50, parts[i].p99, parts[i].max);
    if (nparts) printf("]");
}

/*
 * sent, received    messages published (in the kernel's hands) and delivered
 * lost              sent * fan - received; with drained "limit" they may only be late
 * sent_per_s        over the time from the first to the last send
 * recv_per_s        over the time from the first send to the last delivery
 * stale             deliveries of messages from before this phase (counted nowhere else)
 * dup, reordered    deliveries flagged DUP; deliveries older than one before them
 * p50_us .. max_us  latency from the stamp to the recv() that brought the message
 * elapsed_s         from the first send to the last send or delivery, whichever was later
 * phase_s           with the wait for what never came, too: the time that the CPU figures span
 * loadgen_cpu_s     CPU this program used; near phase_s it, not the broker, is the limit
 * broker_cpu_s      CPU of the processes of --pid, and rss_peak_kb their memory
 * cpu_per_delivery_us  (fleet) the same CPU over the deliveries
 */
static void report(int fan, const char *extra) {
    double tx = (double)(st.last_tx - st.start) / 1e9, el = elapsed();
    uint64_t due = st.sent * (uint64_t)fan;
    printf("{\"mode\":\"%s\",\"label\":\"%s\",\"qos\":%d,\"size\":%d,\"v5\":%s,\"sent\":%llu,\"received\":%llu,"
           "\"lost\":%lld,\"drained\":\"%s\",\"stale\":%llu,\"dup\":%llu,\"reordered\":%llu,\"disconnects\":%llu,"
           "\"sent_per_s\":%.0f,\"recv_per_s\":%.0f,"
           "\"p50_us\":%.1f,\"p95_us\":%.1f,\"p99_us\":%.1f,\"p999_us\":%.1f,\"max_us\":%.1f,"
           "\"elapsed_s\":%.3f,\"phase_s\":%.3f,\"loadgen_cpu_s\":%.3f,\"broker_cpu_s\":%.4f,\"rss_peak_kb\":%llu%s",
           opt.mode, opt.label, opt.qos, opt.size, opt.v5 ? "true" : "false",
           (unsigned long long)st.sent, (unsigned long long)st.received, (long long)(due - st.received),
           st.drained, (unsigned long long)st.stale, (unsigned long long)st.dup, (unsigned long long)st.reordered,
           (unsigned long long)st.disconnects, tx > 0 ? (double)st.sent / tx : 0, (double)st.received / el,
           hist_us(&st.lat, .5), hist_us(&st.lat, .95), hist_us(&st.lat, .99), hist_us(&st.lat, .999),
           (double)st.lat.max / 1e3, el, st.phase, st.own_cpu, st.broker_cpu,
           (unsigned long long)st.rss_peak_kb, extra);
    report_parts();
    printf("}\n");
    fflush(stdout);
}

/* ---------------------------------------------------------------------- modes */

static void open_subscribers(int n, const char *fmt) {
    subscribers = &conns[nconns];
    nsubs = n;
    for (int i = 0; i < n; i++) subscribe_one(open_conn(), fmt, i);
}

static void open_publishers(int n, const char *fmt) {
    publishers = &conns[nconns];
    for (int i = 0; i < n; i++) publisher_to(open_conn(), i, fmt);
}

/* Device i is of site i mod n and of model i / n mod n, with n subscribers for the sites, the models and the measures. */
static void mode_fleet(void) {
    enum { PARTS = 3, MEMBERS = 4, RECEIVERS = PARTS + 2, TOPICS = 4, PACKETS = 16, STEPS = 32, WARM_UP_RATE = 5000 };
    static const char *const filters[PARTS] = { "fleet/s%d/#", "fleet/+/m%d/#", "fleet/+/+/+/k%d" };
    char topic[64], extra[64];
    int n = opt.subs / PARTS;
    alloc_conns(opt.subs + 1 + MEMBERS + opt.pubs);
    for (int i = 0; i < n * PARTS; i++) subscribe_one(open_conn(), filters[i % PARTS], i / PARTS);
    subscribe_one(open_conn(), "fleet/#", 0);
    for (int i = 0; i < MEMBERS; i++) subscribe_one(open_conn(), "$share/workers/fleet/#", i);
    publishers = &conns[nconns];
    for (int i = 0; i < opt.pubs; i++) {
        struct packet *packets = xalloc(PACKETS * sizeof *packets);
        int first = (int)(random64() % (uint64_t)n);
        for (int k = 0; k < PACKETS; k++) {
            double size = 20;
            for (uint64_t step = random64() % (STEPS + 1); step; step--) size *= 1.1556;   /* 2048 / 20, to the 1/STEPS */
            snprintf(topic, sizeof topic, "fleet/s%d/m%d/d%d/k%d", i % n, i / n % n, i, (first + k % TOPICS) % n);
            packets[k] = encode_publish(topic, (int)size, k % 8 == 7 ? 0 : opt.qos, (uint32_t)i);
            if (k % 8 == 3) packets[k].bytes[0] |= 1;   /* RETAIN */
        }
        make_publisher(open_conn(), i, packets, PACKETS);
    }
    jittered = true;
    arm_all();
    run(publishers, opt.pubs, RECEIVERS, WARM_UP_RATE, 1, opt.drain);
    clear_backlog();
    run(publishers, opt.pubs, RECEIVERS, opt.rate > 0 ? opt.rate : 1000, opt.secs, opt.drain);
    snprintf(extra, sizeof extra, ",\"cpu_per_delivery_us\":%.2f", st.broker_cpu * 1e6 / (double)st.received);
    report(RECEIVERS, opt.npids && st.received ? extra : "");
}

static void mode_stream(void) {
    char extra[64] = "";
    alloc_conns(2 * opt.pubs + 1);
    open_subscribers(opt.pubs, opt.spread ? "stream/%d/#" : "stream/%d/data");
    open_publishers(opt.pubs, "stream/%d/data");
    if (opt.churn > 0) churner = open_conn();
    single_source = true;
    arm_all();
    run(publishers, opt.pubs, 1, opt.rate, opt.secs, opt.drain);
    if (churner) snprintf(extra, sizeof extra, ",\"churn_per_s\":%.0f", (double)st.churned / elapsed());
    report(1, extra);
}

static void mode_fanout(void) {
    char extra[64];
    alloc_conns(opt.subs + 1);
    open_subscribers(opt.subs, "fanout/all/data");
    open_publishers(1, "fanout/all/data");
    single_source = true;
    arm_all();
    run(publishers, 1, opt.subs, opt.rate, opt.secs, opt.drain);
    snprintf(extra, sizeof extra, ",\"last_p50_us\":%.1f,\"last_p99_us\":%.1f", hist_us(&st.last, .5), hist_us(&st.last, .99));
    report(opt.subs, st.last.n ? extra : "");
}

/* Is this rate held?  All sent in time, all received, and p99 under the limit. */
static bool fanin_holds(double rate) {
    run(publishers, opt.pubs, 1, rate, opt.secs, 1);
    bool ok = st.received == st.sent && (double)st.sent >= rate * opt.secs * .99
           && hist_us(&st.lat, .99) < opt.p99_limit_us && elapsed() < opt.secs * 1.1 + .05;
    if (!ok) clear_backlog();
    return ok;
}

static void mode_fanin(void) {
    char extra[256] = "";
    alloc_conns(opt.pubs + 1);
    open_subscribers(1, "devices/+/temp");
    open_publishers(opt.pubs, "devices/%d/temp");
    arm_all();
    if (!opt.sweep) {
        run(publishers, opt.pubs, 1, opt.rate > 0 ? opt.rate : 1000, opt.secs, opt.drain);
    } else {
        double good = 0, bad = 0, rate = opt.rate > 0 ? opt.rate : 2000;
        for (int i = 0; i < 14 && !bad; i++, rate *= 1.6) fanin_holds(rate) || fanin_holds(rate) ? (good = rate) : (bad = rate);
        for (int i = 0; i < 3 && bad && good; i++) {
            rate = (good + bad) / 2;
            if (fanin_holds(rate)) good = rate; else bad = rate;
        }
        for (int i = 0; i < 6 && good && !fanin_holds(good); i++) good *= .88;     /* it must hold once more */
        snprintf(extra, sizeof extra, ",\"max_rate\":%.0f,\"first_failing_rate\":%.0f", good, bad);
    }
    report(1, extra);
}

static void mode_flood(void) {
    char extra[160], topic[64];
    bool mixed = opt.mixed;
    opt.mixed = false;                  /* which says something else of QoS and sizes */
    if (mixed) opt.qos = 1;
    alloc_conns(opt.subs + opt.pubs);
    open_subscribers(opt.subs, "flood/%d/#");
    publishers = &conns[nconns];
    for (int i = 0; i < opt.pubs; i++) {
        struct packet *packet = xalloc(sizeof *packet);
        snprintf(topic, sizeof topic, "flood/%d/%d", i % opt.subs, i);
        *packet = encode_publish(topic, opt.size, mixed ? i % 2 : opt.qos, (uint32_t)i);
        make_publisher(open_conn(), i, packet, 1);
    }
    arm_all();
    run(publishers, opt.pubs, 1, 0, opt.secs, opt.drain);
    snprintf(extra, sizeof extra, ",\"acknowledged\":%llu,\"refused\":%llu,\"received_acked\":%llu",
             (unsigned long long)st.acknowledged, (unsigned long long)st.refused, (unsigned long long)st.received_acked);
    report(1, extra);
}

/*
 * Connection k owns the topics w/<k>/...: 60 % of its filters are exact, 30 % end
 * in '+', and of the rest most end in '#', while four have '+' in front, so that
 * a broker must also look down its '+' branches for every message.
 */
static void mode_wild(void) {
    int per = opt.filters / opt.subs, pool = opt.topics;
    char **filter = xalloc((size_t)per * sizeof *filter), topic[64];
    alloc_conns(opt.subs + opt.pubs);
    subscribers = conns;
    nsubs = opt.subs;
    for (int i = 0; i < per; i++) filter[i] = xalloc(64);
    int exact = per * 6 / 10, plus = per * 3 / 10;
    for (int k = 0; k < opt.subs; k++) {
        for (int b = 0; b < per; b++) {
            int front = b - (per - 4);
            snprintf(filter[b], 64,
                     b < exact ? "w/%d/%d/0" : b < exact + plus ? "w/%d/%d/+" : front < 0 ? "w/%d/%d/#" :
                     front < 2 ? "w/+/x%d-%d/+" : "+/any/y%d-%d/#", k, b);
        }
        subscribe(open_conn(), filter, per, opt.qos);
    }
    struct packet *packets = xalloc((size_t)pool * sizeof *packets);
    for (int i = 0; i < pool; i++) {
        int k = (int)(random64() % (uint64_t)opt.subs), b = (int)(random64() % (uint64_t)per), front = b - (per - 4);
        int leaf = b < exact ? 0 : (int)(random64() % 10);
        if (front < 0) snprintf(topic, sizeof topic, "w/%d/%d/%d", k, b, leaf);
        else if (front < 2) snprintf(topic, sizeof topic, "w/%d/x%d-%d/%d", leaf, k, b, leaf);
        else snprintf(topic, sizeof topic, "q%d/any/y%d-%d/a/%d", leaf, k, b, leaf);
        packets[i] = encode_publish(topic, opt.size, opt.qos, 0);
    }
    publishers = &conns[nconns];
    for (int i = 0; i < opt.pubs; i++) make_publisher(open_conn(), i, packets, (uint32_t)pool);
    arm_all();
    run(publishers, opt.pubs, 1, opt.rate, opt.secs, opt.drain);
    report(1, "");
}

/* What a connection of connect mode does next, once epoll says it may. */
static bool introduce(struct conn *c) {
    uint8_t buf[1024];
    char id[32];
    if (opt.tls && !c->tls) tls_wrap(c, opt.resume);
    if (c->tls && tls_handshake(c) != 1) return errno == EAGAIN;
    snprintf(id, sizeof id, "lg%dx%u", (int)getpid(), c->number);
    next_user = c->number;
    size_t len = encode_connect(buf, id, true);
    c->introduced = true;
    return io_send(c, buf, len, 0) == (ssize_t)len;
}

static void begin_connection(struct conn *c) {
    c->fd = dial(false);
    struct epoll_event e = { .events = EPOLLOUT, .data.ptr = c };
    epoll_ctl(ep, EPOLL_CTL_ADD, c->fd, &e);
}

static uint64_t retry_at(void) {
    return now_ns() + (uint64_t)(opt.retry * (.5 + (double)(random64() >> 11) * 0x1p-53) * 1e9);
}

static void mode_connect(void) {
    alloc_conns(opt.conns + 1);
    if (opt.resume) {                   /* the session that the others resume comes with the first packets */
        struct conn *first = open_conn();
        uint8_t ping[2] = { 0xC0, 0 }, pong[2];
        send_all(first, ping, 2);
        expect(first, 13, pong, sizeof pong);
        drop(first);
        memset(first, 0, sizeof *first);
        nconns = 0;
    }
    uint64_t before = broker_rss_kb(), start = now_ns(), stop = start + (uint64_t)(opt.secs * 1e9), end;
    double own = own_cpu_secs(), broker = broker_cpu_secs();
    int opened = 0, ready = 0, failed = 0, resumed = 0, waiting = 0, retries = 0;
    struct epoll_event ev[256];
    uint64_t *begun = xalloc((size_t)opt.conns * sizeof *begun), *again = xalloc((size_t)opt.conns * sizeof *again);
    for (end = start; ready + failed < opt.conns && end < stop; ) {
        for (; opened < opt.conns && opened - ready - failed < opt.concurrency; opened++) {
            conns[opened].number = (uint32_t)opened;
            begun[opened] = now_ns();
            begin_connection(&conns[opened]);
        }
        for (int i = 0; waiting && i < opened; i++) {
            if (!again[i] || again[i] > end) continue;
            again[i] = 0;
            waiting--;
            retries++;
            memset(&conns[i], 0, sizeof conns[i]);
            conns[i].number = (uint32_t)i;
            begin_connection(&conns[i]);
        }
        int n = epoll_wait(ep, ev, 256, waiting ? 10 : 100);
        for (int i = 0; i < n; i++) {
            struct conn *c = ev[i].data.ptr;
            uint8_t buf[1024];
            if (!c->introduced) {                       /* connected, or in the middle of the TLS handshake */
                if (!introduce(c)) {
                    drop(c);
                    if (opt.retry > 0) again[c->number] = retry_at(), waiting++;
                    else failed++;
                    continue;
                }
                struct epoll_event e = { .events = EPOLLIN, .data.ptr = c };
                epoll_ctl(ep, EPOLL_CTL_MOD, c->fd, &e);
                continue;
            }
            ssize_t len = io_recv(c, buf, sizeof buf, 0);
            if (len < 0 && errno == EAGAIN) continue;   /* TLS had something to say, and MQTT not yet */
            if (len >= 4 && buf[0] == 0x20 && buf[3] == 0) {
                ready++;
                if (c->tls) resumed += tls_resumed(c);
                hist_add(&st.lat, now_ns() - begun[c->number]);
                epoll_ctl(ep, EPOLL_CTL_DEL, c->fd, NULL);
            } else {
                drop(c);
                if (opt.retry > 0) again[c->number] = retry_at(), waiting++;
                else failed++;
            }
        }
        end = now_ns();
    }
    nconns = opened;
    double el = (double)(end - start) / 1e9;
    own = own_cpu_secs() - own;
    broker = broker_cpu_secs() - broker;
    usleep((useconds_t)(opt.hold * 1e6));
    uint64_t after = broker_rss_kb();
    printf("{\"mode\":\"connect\",\"label\":\"%s\",\"conns\":%d,\"failed\":%d,\"resumed\":%d,\"retries\":%d,\"connects_per_s\":%.0f,"
           "\"p50_us\":%.1f,\"p99_us\":%.1f,\"max_us\":%.1f,\"phase_s\":%.3f,\"loadgen_cpu_s\":%.3f,\"broker_cpu_s\":%.2f,"
           "\"rss_before_kb\":%llu,\"rss_after_kb\":%llu,\"rss_per_conn_bytes\":%.0f}\n",
           opt.label, ready, failed + (opt.conns - ready - failed), resumed, retries, (double)ready / el,
           hist_us(&st.lat, .5), hist_us(&st.lat, .99), (double)st.lat.max / 1e3, el, own, broker,
           (unsigned long long)before, (unsigned long long)after,
           ready ? ((double)after - (double)before) * 1024 / ready : 0);
    fflush(stdout);
    while (opt.stay && getchar() != EOF) {}
}

static const char *const OFFLINE = "offline";

static void mode_durable(void) {
    char extra[96];
    alloc_conns(opt.pubs + 1);
    struct conn *offline = open_as(OFFLINE, false);
    subscribe_one(offline, "durable/#", 0);
    say_goodbye(offline);
    open_publishers(opt.pubs, "durable/%d/data");
    for (int i = 0; i < opt.pubs; i++) publishers[i].stamps = xalloc(STAMPS * sizeof *publishers->stamps);
    arm_all();
    run(publishers, opt.pubs, 1, 0, opt.secs, opt.drain);
    snprintf(extra, sizeof extra, ",\"stored\":%llu,\"cpu_per_message_us\":%.2f",
             (unsigned long long)(st.before + st.sent), st.received ? st.broker_cpu * 1e6 / (double)st.received : 0);
    report(1, extra);
}

static void mode_sessions(void) {
    char id[32], filter[48];
    uint8_t buf[128];
    alloc_conns(opt.concurrency);
    uint64_t start = now_ns();
    for (int made = 0; made < opt.conns; ) {
        int n = opt.conns - made < opt.concurrency ? opt.conns - made : opt.concurrency;
        for (int i = 0; i < n; i++) {
            snprintf(id, sizeof id, "kept%d", made + i);
            memset(&conns[i], 0, sizeof *conns);
            conns[i].fd = dial(true);
            send_all(&conns[i], buf, encode_connect(buf, id, false));
        }
        for (int i = 0; i < n; i++) {
            expect(&conns[i], 2, buf, sizeof buf);
            if (buf[1]) die("set-up: CONNECT refused with code %d", buf[1]);
        }
        for (int i = 0; i < n; i++) {
            snprintf(filter, sizeof filter, "kept/%d/#", made + i);
            uint8_t *p = put_str(put16(buf + 2, 1), filter);
            *p++ = 1;
            buf[0] = 0x82;
            buf[1] = (uint8_t)(p - buf - 2);
            send_all(&conns[i], buf, (size_t)(p - buf));
        }
        for (int i = 0; i < n; i++, made++) {
            expect(&conns[i], 9, buf, sizeof buf);
            if (buf[2] >= 0x80) die("set-up: SUBSCRIBE refused with code %d", buf[2]);
            say_goodbye(&conns[i]);
        }
    }
    double el = (double)(now_ns() - start) / 1e9;
    printf("{\"mode\":\"sessions\",\"stored\":%d,\"elapsed_s\":%.3f,\"sessions_per_s\":%.0f}\n", opt.conns, el, opt.conns / el);
    fflush(stdout);
}

/* Whether the broker answers a CONNECT now. */
static bool answers(void) {
    uint8_t buf[128];
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct timeval tv = { .tv_sec = 1 };
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons((uint16_t)opt.port) };
    inet_pton(AF_INET, opt.host, &a.sin_addr);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv);
    size_t n = encode_connect(buf, "probe", true);
    bool yes = !connect(fd, (struct sockaddr *)&a, sizeof a) && send(fd, buf, n, MSG_NOSIGNAL) == (ssize_t)n
            && recv(fd, buf, 4, MSG_WAITALL) == 4 && buf[0] == 0x20 && !buf[3];
    close(fd);
    return yes;
}

static void mode_restart(void) {
    double first = 0, drain = 0;
    alloc_conns(1);
    while (!answers()) {
        if (now_ns() > setup_deadline) die("no answer to a CONNECT within --setup-limit");
        usleep(1000);
    }
    uint64_t up = now_ns(), began, kb = broker_rss_kb();
    double cpu = broker_cpu_secs();
    if (opt.count) {
        began = now_ns();
        open_as(OFFLINE, false);
        arm_now();
        for (uint64_t end = began + 10 * SEC; st.received < opt.count && !conns->dead && now_ns() < end; ) {
            uint64_t before = st.received;
            wait_events((int64_t)1e8);
            if (st.received != before) end = st.last_rx + 10 * SEC;
            if (!before && st.received) first = (double)(st.last_rx - began) / 1e6;
            st.rss_peak_kb = broker_rss_kb();
        }
        drain = st.received ? (double)(st.last_rx - began) / 1e9 : 0;
    }
    printf("{\"mode\":\"restart\",\"restart_ms\":%.1f,\"rss_started_kb\":%llu,\"rss_after_kb\":%llu,\"sent\":%llu,\"received\":%llu,"
           "\"lost\":%lld,\"dup\":%llu,\"first_ms\":%.1f,\"drain_per_s\":%.0f,\"phase_s\":%.3f,\"broker_cpu_s\":%.3f,\"loadgen_cpu_s\":%.3f}\n",
           (double)(up - opt.since) / 1e6, (unsigned long long)kb, (unsigned long long)broker_rss_kb(),
           (unsigned long long)opt.count, (unsigned long long)st.received, (long long)(opt.count - st.received),
           (unsigned long long)st.dup, first, drain > 0 ? (double)st.received / drain : 0, drain,
           broker_cpu_secs() - cpu, own_cpu_secs());
    fflush(stdout);
}

static void mode_slow(void) {
    int readers = opt.subs - 1, small = 4096;
    static __typeof__(st) beside;
    char extra[512];
    alloc_conns(opt.subs + 1);
    open_subscribers(readers, "slow/all/data");
    open_publishers(1, "slow/all/data");
    arm_all();
    run(publishers, 1, readers, opt.rate, opt.secs, opt.drain);
    double first = (double)st.received / elapsed(), p99 = hist_us(&st.lat, .99);
    long long first_lost = (long long)(st.sent * (uint64_t)readers - st.received);
    uint64_t rss = st.rss_peak_kb;
    clear_backlog();
    struct conn *deaf = open_conn();
    deaf->deaf = true;
    setsockopt(deaf->fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    subscribe_one(deaf, "slow/all/data", 0);
    run(publishers, 1, readers, opt.rate, opt.secs, opt.drain);
    double second = (double)st.received / elapsed();
    beside = st;
    close(deaf->fd);
    deaf->dead = true;
    clear_backlog();
    run(publishers, 1, readers, opt.rate, opt.secs, opt.drain);
    double without = (first + (double)st.received / elapsed()) / 2;
    st = beside;
    snprintf(extra, sizeof extra, ",\"without_per_s\":%.0f,\"before_p99_us\":%.1f,\"before_lost\":%lld,\"before_rss_peak_kb\":%llu,"
             "\"reader_ratio\":%.3f", without, p99, first_lost, (unsigned long long)rss, without > 0 ? second / without : 0);
    report(readers, extra);
}

/* ------------------------------------------------- --raw: the limit TCP sets */

/*
 * A stand-in for a broker that knows no topics: who sends SUBSCRIBE is subscriber
 * 0, 1, ... in that order, and what publisher k sends after its CONNECT goes, byte
 * for byte, to subscriber k (stream), to all of them (fanout) or to the only one
 * (fanin).  One read(), then one send() for each receiver; what little comes for one
 * receiver in one pass goes together: the least any broker over TCP can do.
 */
static void pass_on(int fd, const uint8_t *p, size_t n) {
    while (n) {
        ssize_t k = send(fd, p, n, MSG_NOSIGNAL);
        if (k <= 0) die("raw: send: %s", strerror(errno));
        p += k; n -= (size_t)k;
    }
}

static struct { uint8_t bytes[65536]; size_t n; int fd; } held;

static void pass_on_held(void) {
    pass_on(held.fd, held.bytes, held.n);
    held.n = 0;
}

static void pass_on_together(int fd, const uint8_t *p, size_t n) {
    const bool is_long = n > 4096;
    if (held.n && (fd != held.fd || is_long || held.n + n > sizeof held.bytes)) pass_on_held();
    if (is_long) {
        pass_on(fd, p, n);
        return;
    }
    memcpy(held.bytes + held.n, p, n);
    held.n += n;
    held.fd = fd;
}

static void raw_child(int lfd, bool broadcast) {
    enum { BUF = 65536 };
    struct peer { int fd, number; bool publisher; } *peers = xalloc(20000 * sizeof *peers);
    static uint8_t buf[BUF];
    int *sub = xalloc(20000 * sizeof *sub), nsub = 0, npub = 0, npeer = 0, one = 1, e = epoll_create1(0);
    struct epoll_event ev[64], add = { .events = EPOLLIN, .data.ptr = NULL };
    epoll_ctl(e, EPOLL_CTL_ADD, lfd, &add);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) {
        int n = epoll_wait(e, ev, 64, -1);
        for (int i = 0; i < n; i++) {
            struct peer *p = ev[i].data.ptr;
            if (!p) {
                p = &peers[npeer++];
                p->fd = accept(lfd, NULL, NULL);
                p->number = -1;
                setsockopt(p->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
                add.data.ptr = p;
                epoll_ctl(e, EPOLL_CTL_ADD, p->fd, &add);
                continue;
            }
            ssize_t len = read(p->fd, buf, BUF);
            if (len <= 0) { epoll_ctl(e, EPOLL_CTL_DEL, p->fd, NULL); continue; }
            if (p->number < 0 && buf[0] == 0x10) {                       /* CONNECT */
                pass_on(p->fd, (const uint8_t *)"\x20\x02\x00\x00", 4);
            } else if (p->number < 0 && buf[0] == 0x82) {                /* SUBSCRIBE */
                pass_on(p->fd, (const uint8_t *)"\x90\x03\x00\x01\x00", 5);
                p->number = nsub;
                sub[nsub++] = p->fd;
            } else {
                if (p->number < 0) p->number = npub++;
                if (!broadcast) pass_on_together(sub[p->number % nsub], buf, (size_t)len);
                else for (int k = 0; k < nsub; k++) pass_on(sub[k], buf, (size_t)len);
            }
        }
        if (held.n) pass_on_held();
    }
}

static void start_raw(void) {
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (opt.qos || opt.v5 || opt.tls || opt.mixed || opt.churn > 0) die("--raw is for QoS 0 and 3.1.1 over TCP");
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, len) || listen(fd, 1024)) die("raw: %s", strerror(errno));
    getsockname(fd, (struct sockaddr *)&a, &len);
    pid_t pid = fork();
    if (pid < 0) die("raw: %s", strerror(errno));
    if (pid == 0) raw_child(fd, !strcmp(opt.mode, "fanout"));
    close(fd);
    opt.host = "127.0.0.1";
    opt.port = ntohs(a.sin_port);
    opt.pids[0] = pid;
    opt.npids = 1;
}

/* ----------------------------------------------------------------------- main */

static const struct { const char *name; void (*go)(void); } modes[] = {
    { "fleet", mode_fleet }, { "stream", mode_stream }, { "fanout", mode_fanout }, { "fanin", mode_fanin }, { "flood", mode_flood }, { "wild", mode_wild },
    { "connect", mode_connect }, { "pingpong", mode_stream }, { "slow", mode_slow },
    { "durable", mode_durable }, { "sessions", mode_sessions }, { "restart", mode_restart },
};

static void parse_pids(char *list) {
    for (char *s = strtok(list, ","); s && opt.npids < 64; s = strtok(NULL, ",")) opt.pids[opt.npids++] = atoi(s);
}

static void parse_options(int argc, char **argv) {
    enum { HOST = 256, PORT, MODE, LABEL, PUBS, SUBS, QOS, SIZE, COUNT, SECS, DRAIN, RATE, LAG, WINDOW, BATCH, SNDBUF,
           V5, RAW, SWEEP, SPIN, PID, CONNS, CONC, HOLD, FILTERS, TOPICS, P99, SETUP, TLS_, RESUME, PROPS, MIXED, SPREAD, CHURN, WARM, SINCE, IDLE,
           RETRY, USERS, PASSWORD, STAY };
    static const struct option names[] = {
        { "host", 1, 0, HOST }, { "port", 1, 0, PORT }, { "mode", 1, 0, MODE }, { "label", 1, 0, LABEL },
        { "pubs", 1, 0, PUBS }, { "subs", 1, 0, SUBS }, { "qos", 1, 0, QOS }, { "size", 1, 0, SIZE },
        { "count", 1, 0, COUNT }, { "secs", 1, 0, SECS }, { "drain", 1, 0, DRAIN }, { "rate", 1, 0, RATE },
        { "lag", 1, 0, LAG }, { "window", 1, 0, WINDOW }, { "batch", 1, 0, BATCH }, { "sndbuf", 1, 0, SNDBUF },
        { "v5", 0, 0, V5 }, { "raw", 0, 0, RAW }, { "sweep", 0, 0, SWEEP }, { "spin", 0, 0, SPIN }, { "pid", 1, 0, PID },
        { "conns", 1, 0, CONNS }, { "concurrency", 1, 0, CONC }, { "hold", 1, 0, HOLD }, { "filters", 1, 0, FILTERS },
        { "topics", 1, 0, TOPICS }, { "p99-limit", 1, 0, P99 }, { "setup-limit", 1, 0, SETUP },
        { "tls", 0, 0, TLS_ }, { "resume", 0, 0, RESUME }, { "props", 0, 0, PROPS }, { "mixed", 0, 0, MIXED },
        { "spread", 1, 0, SPREAD }, { "churn", 1, 0, CHURN },
        { "warm", 1, 0, WARM }, { "since", 1, 0, SINCE }, { "idle", 1, 0, IDLE },
        { "retry", 1, 0, RETRY }, { "stay", 0, 0, STAY }, { "users", 1, 0, USERS }, { "password", 1, 0, PASSWORD }, { 0, 0, 0, 0 },
    };
    for (int o; (o = getopt_long(argc, argv, "", names, NULL)) != -1; )
        switch (o) {
        case HOST: opt.host = optarg; break;
        case PORT: opt.port = atoi(optarg); break;
        case MODE: opt.mode = optarg; break;
        case LABEL: opt.label = optarg; break;
        case PUBS: opt.pubs = atoi(optarg); break;
        case SUBS: opt.subs = atoi(optarg); break;
        case QOS: opt.qos = atoi(optarg); break;
        case SIZE: opt.size = atoi(optarg); break;
        case COUNT: opt.count = strtoull(optarg, NULL, 10); break;
        case SECS: opt.secs = atof(optarg); break;
        case DRAIN: opt.drain = atof(optarg); break;
        case RATE: opt.rate = atof(optarg); break;
        case LAG: opt.lag = strtoull(optarg, NULL, 10); break;
        case WINDOW: opt.window = atoi(optarg); break;
        case BATCH: opt.batch_bytes = atoi(optarg); break;
        case SNDBUF: opt.sndbuf = atoi(optarg); break;
        case V5: opt.v5 = true; break;
        case RAW: opt.raw = true; break;
        case SWEEP: opt.sweep = true; break;
        case SPIN: opt.spin = true; break;
        case PID: parse_pids(optarg); break;
        case CONNS: opt.conns = atoi(optarg); break;
        case CONC: opt.concurrency = atoi(optarg); break;
        case HOLD: opt.hold = atof(optarg); break;
        case FILTERS: opt.filters = atoi(optarg); break;
        case TOPICS: opt.topics = atoi(optarg); break;
        case P99: opt.p99_limit_us = atof(optarg) * 1e3; break;     /* given in ms */
        case SETUP: opt.setup_limit = atof(optarg); break;
        case TLS_: opt.tls = true; break;
        case RESUME: opt.resume = true; break;
        case PROPS: opt.props = true; break;
        case MIXED: opt.mixed = true; break;
        case SPREAD: opt.spread = atoi(optarg); break;
        case CHURN: opt.churn = atof(optarg); break;
        case IDLE: opt.idle = atof(optarg); break;
        case RETRY: opt.retry = atof(optarg); break;
        case STAY: opt.stay = true; break;
        case USERS: opt.users = atoi(optarg); break;
        case PASSWORD: opt.password = optarg; break;
        case WARM: opt.warm = atof(optarg); break;
        case SINCE: opt.since = strtoull(optarg, NULL, 10); break;
        default: die("unknown option; the head of loadgen.c lists them");
        }
    if (opt.size < STAMP_SIZE || opt.size > RECV_SIZE / 2) die("--size must be between 16 and 262144");
    if (opt.pubs < 1 || opt.subs < 1 || opt.conns < 1) die("--pubs, --subs and --conns are at least 1");
    if (opt.qos < 0 || opt.qos > 2 || opt.window < 1 || opt.window > 60000) die("--qos is 0 to 2, --window 1 to 60000");
    if (!strcmp(opt.mode, "slow") && opt.subs < 2) die("slow needs --subs of 2 or more");
    if (!strcmp(opt.mode, "wild") && opt.filters / opt.subs < 10) die("wild needs 10 filters or more a connection");
    if (opt.props && !opt.v5) die("--props needs --v5");
    if (opt.users < 1) die("--users is at least 1");
    if (opt.password && strlen(opt.password) > 100) die("--password has at most 100 bytes");
    if (opt.resume && !opt.tls) die("--resume needs --tls");
    if (opt.spread < 0 || opt.spread > 100000) die("--spread is 0 to 100000");
    if (!strcmp(opt.mode, "fleet") && opt.subs < 3) die("fleet needs --subs of 3 or more");
    if (!strcmp(opt.mode, "fleet")) opt.window = 1;
    if (!strcmp(opt.mode, "durable")) {
        opt.qos = 1;
        if (opt.window > STAMPS / 2) die("durable takes a --window up to %d", STAMPS / 2);
    }
    if (opt.warm > 0 && strcmp(opt.mode, "durable")) die("--warm is for durable");
    if (opt.v5 && (!strcmp(opt.mode, "durable") || !strcmp(opt.mode, "sessions") || !strcmp(opt.mode, "restart")))
        die("%s speaks 3.1.1", opt.mode);
    if (!strcmp(opt.mode, "pingpong")) { opt.pubs = 1; opt.lag = 1; }
}

int main(int argc, char **argv) {
    parse_options(argc, argv);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGUSR1, on_signal);
    signal(SIGUSR2, on_signal);
    prctl(PR_SET_TIMERSLACK, 1);
    struct rlimit files;
    if (!getrlimit(RLIMIT_NOFILE, &files)) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    if (opt.tls) tls_begin();
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        if (strcmp(modes[i].name, opt.mode)) continue;
        if (opt.raw) start_raw();
        modes[i].go();
        if (opt.raw) {
            kill(opt.pids[0], SIGKILL);
            waitpid(opt.pids[0], NULL, 0);
        }
        close_all();
        return 0;
    }
    die("no such mode");
}
