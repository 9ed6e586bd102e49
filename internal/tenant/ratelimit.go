package tenant

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/airlock-sandbox/airlock/internal/db"
	"github.com/airlock-sandbox/airlock/internal/jwt"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// Work is what a request is, for the limits.
type Work string

// The kinds of work. A message is a request as well, and counts as long as it runs.
const (
	WorkRequest Work = "request"
	WorkMessage Work = "message"
)

// RateLimits are the limits of those for whom nothing else is set; 0 is none. What binds a user does not bind the app's
// owner, whose limits are the app's. They count on each server by itself.
type RateLimits struct {
	AppMessages, UserMessages int // in flight
	AppRequests, UserRequests int // in a minute
	Misses                    int // answers Not found in a minute, of one user in one app; an app asks for what its users tell it
}

const (
	// maxBuckets bounds the callers that are remembered; those who asked last stay.
	maxBuckets = 50_000
	// busyAgain is when it is worth trying again after too many at once.
	busyAgain = 5 * time.Second
)

// missed is what is counted of answers Not found.
const missed = "misses"

// counted is who a limit counts for: an app (user "") or a user in it.
type counted struct{ app, user, what string }

// limiter counts. Its zero value is ready. A bucket that was not used for a minute is full, so that forgetting it changes
// nothing.
type limiter struct {
	mu      sync.Mutex
	flight  map[counted]int
	buckets map[counted]*list.Element
	order   list.List // of *bucket, the one used last in front
}

type bucket struct {
	key    counted
	tokens float64
	at     time.Time
}

// state of a bucket after a request.
type state struct {
	limit, remaining int
	full             time.Time // when all of it may be used again
	wait             time.Duration
}

// Admit lets a request of a caller in, and is called once for each. release ends it and may be called again; it is never
// nil. The header tells the limit that is nearest, and is to be sent with the error too, which is a 429 with a time.
func (s *Service) Admit(ctx context.Context, c Caller, w Work) (release func(), h http.Header, err error) {
	release, h, err = s.admit(c, w)
	if err == nil && c.Unnoted {
		s.noteUser(ctx, c)
	}
	return release, h, err
}

func (s *Service) admit(c Caller, w Work) (release func(), h http.Header, err error) {
	h = http.Header{}
	l := &s.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	held, err := s.hold(c, w, h, s.now())
	if err != nil {
		l.give(held)
		return func() {}, h, err
	}
	var once sync.Once
	return func() {
		once.Do(func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.give(held)
		})
	}, h, nil
}

// hold asks every limit and gives what the request holds of them until it ends, with an error too.
func (s *Service) hold(c Caller, w Work, h http.Header, now time.Time) (held []counted, err error) {
	l := &s.limiter
	if n := s.Limits.Misses; n > 0 && c.UserID != "" {
		// Each request may turn out to be a miss, so it holds one until that is known: many at once get no further than
		// one after the other.
		user := counted{c.AppID, c.UserID, missed}
		st := l.look(user, n, now)
		switch {
		case st.remaining == 0:
			return nil, wire.RateLimited(st.wait, "Too many requests for things that are not there: %d a minute are let through.", n)
		case l.flight[user] >= st.remaining:
			return nil, wire.RateLimited(time.Second, "Too many requests of this user at once: %d are under way.", l.flight[user])
		}
		held = l.hold(held, user)
	}
	for _, r := range s.requestLimits(c) {
		st := l.take(r.who, r.limit, now)
		tell(h, st)
		if st.wait > 0 {
			return held, wire.RateLimited(st.wait, "Too many requests: the limit of this %s is %d a minute.", r.who.name(), r.limit)
		}
	}
	if w != WorkMessage {
		return held, nil
	}
	for _, r := range s.messageLimits(c) {
		if l.flight[r.who] >= r.limit {
			return held, wire.RateLimited(busyAgain, "Too many messages at once: the limit of this %s is %d.", r.who.name(), r.limit)
		}
		held = l.hold(held, r.who)
	}
	return held, nil
}

// Miss counts an answer Not found against a user who tries ids. It is called before the request's release: until then
// the request holds one already.
func (s *Service) Miss(c Caller) {
	if s.Limits.Misses <= 0 || c.UserID == "" {
		return
	}
	s.limiter.mu.Lock()
	defer s.limiter.mu.Unlock()
	s.limiter.take(counted{c.AppID, c.UserID, missed}, s.Limits.Misses, s.now())
}

type bound struct {
	who   counted
	limit int
}

func (s *Service) requestLimits(c Caller) []bound {
	return bounds(c, "requests", first(c.Limits.AppRequests, s.Limits.AppRequests), first(c.Limits.UserRequests, s.Limits.UserRequests))
}

func (s *Service) messageLimits(c Caller) []bound {
	return bounds(c, "messages", first(c.Limits.AppMessages, s.Limits.AppMessages), first(c.Limits.UserMessages, s.Limits.UserMessages))
}

// bounds gives the limits that bind a caller, the user's first: what it refuses must not use up the app's.
func bounds(c Caller, what string, app, user int) []bound {
	var out []bound
	if user > 0 && c.UserID != "" {
		out = append(out, bound{counted{c.AppID, c.UserID, what}, user})
	}
	if app > 0 && c.AppID != "" {
		out = append(out, bound{counted{c.AppID, "", what}, app})
	}
	return out
}

func first(set, otherwise int) int {
	if set > 0 {
		return set
	}
	return otherwise
}

func (k counted) name() string {
	if k.user == "" {
		return "app"
	}
	return "user"
}

func (l *limiter) hold(held []counted, k counted) []counted {
	if l.flight == nil {
		l.flight = map[counted]int{}
	}
	l.flight[k]++
	return append(held, k)
}

func (l *limiter) give(held []counted) {
	for _, k := range held {
		if l.flight[k]--; l.flight[k] <= 0 {
			delete(l.flight, k)
		}
	}
}

// find gives the bucket of a key, filled up to now.
func (l *limiter) find(k counted, limit int, now time.Time) *bucket {
	if e := l.buckets[k]; e != nil {
		l.order.MoveToFront(e)
		b, _ := e.Value.(*bucket)
		if past := now.Sub(b.at); past > 0 {
			b.tokens += past.Minutes() * float64(limit)
			b.at = now
		}
		b.tokens = min(b.tokens, float64(limit))
		return b
	}
	for l.order.Len() >= maxBuckets {
		old := l.order.Back()
		b, _ := l.order.Remove(old).(*bucket)
		delete(l.buckets, b.key)
	}
	if l.buckets == nil {
		l.buckets = map[counted]*list.Element{}
	}
	b := &bucket{key: k, tokens: float64(limit), at: now}
	l.buckets[k] = l.order.PushFront(b)
	return b
}

// take uses one of the bucket's requests; state.wait is when there will be one if there is none.
func (l *limiter) take(k counted, limit int, now time.Time) state {
	b := l.find(k, limit, now)
	ok := b.tokens >= 1
	if ok {
		b.tokens--
	}
	st := b.state(limit, now)
	if ok {
		st.wait = 0
	}
	return st
}

// look is take without taking, and remembers nobody.
func (l *limiter) look(k counted, limit int, now time.Time) state {
	if l.buckets[k] == nil {
		return state{limit: limit, remaining: limit, full: now}
	}
	return l.find(k, limit, now).state(limit, now)
}

func (b *bucket) state(limit int, now time.Time) state {
	perToken := time.Minute / time.Duration(limit)
	st := state{limit: limit, remaining: int(b.tokens)}
	st.full = now.Add(time.Duration((float64(limit) - b.tokens) * float64(perToken)))
	if b.tokens < 1 {
		st.wait = time.Duration(math.Ceil((1 - b.tokens) * float64(perToken)))
	}
	return st
}

// tell writes a limit into the header if it is nearer than the one that stands there.
func tell(h http.Header, st state) {
	const prefix = "Anthropic-Ratelimit-Requests-"
	if have, err := strconv.Atoi(h.Get(prefix + "Remaining")); err == nil && have <= st.remaining {
		return
	}
	h.Set(prefix+"Limit", strconv.Itoa(st.limit))
	h.Set(prefix+"Remaining", strconv.Itoa(st.remaining))
	h.Set(prefix+"Reset", st.full.UTC().Format(time.RFC3339))
}

// Limit is what is set for an app, or for a user in it.
type Limit struct {
	AppID string
	// User is <issuer id>/<subject>; "" is the app itself.
	User string
	// Messages may be in flight, Requests may come in a minute; 0 is the server's default.
	Messages, Requests int
}

const maxLimit = 1_000_000

// SetLimit replaces the limits of an app (id or name), or of a user in it.
func (s *Service) SetLimit(ctx context.Context, app string, l Limit) (*Limit, error) {
	for name, n := range map[string]int{"messages_in_flight": l.Messages, "requests_per_minute": l.Requests} {
		if n < 0 || n > maxLimit {
			return nil, wire.Invalid("%s: expected an integer from 1 to %d, or nothing for the default.", name, maxLimit)
		}
	}
	if l.Messages == 0 && l.Requests == 0 {
		return nil, wire.Invalid("messages_in_flight, requests_per_minute: expected one of them.")
	}
	var err error
	if l.AppID, l.User, err = s.limited(ctx, app, l.User); err != nil {
		return nil, err
	}
	if issuer, _, ok := strings.Cut(l.User, "/"); ok {
		if err := s.checkIssuer(ctx, "user", issuer, l.User); err != nil {
			return nil, err
		}
	}
	if err := s.DB.RunTx(ctx, putLimit(&l)); err != nil {
		return nil, fmt.Errorf("set limit: %w", err)
	}
	return &l, nil
}

// limited checks whom a limit is for.
func (s *Service) limited(ctx context.Context, app, user string) (appID, userID string, err error) {
	a, err := s.GetApp(ctx, app)
	if err != nil {
		return "", "", err
	}
	if user == "" {
		return a.ID, "", nil
	}
	issuer, sub, err := splitUser(user)
	return a.ID, issuer + "/" + sub, err
}

// RemoveLimit gives an app, or a user in it, the defaults again, and tells whether there was anything else. It may be repeated.
func (s *Service) RemoveLimit(ctx context.Context, app, user string) (existed bool, err error) {
	appID, userID, err := s.limited(ctx, app, user)
	if err != nil {
		return false, err
	}
	err = s.DB.RunDelete(ctx, dropLimit(appID, userID))
	if errors.Is(err, db.ErrStale) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("remove limit: %w", err)
	}
	return true, nil
}

// ListLimits gives what is set, by app and user, of one app (id or name) or of all ("").
func (s *Service) ListLimits(ctx context.Context, app string, limit int, page string) ([]Limit, string, error) {
	if app != "" {
		a, err := s.GetApp(ctx, app)
		if err != nil {
			return nil, "", err
		}
		app = a.ID
	}
	filter := "limits " + app
	var afterApp, afterUser string
	if page != "" {
		if err := wire.DecodeCursor(s.CursorKey, filter, page, &afterApp, &afterUser); err != nil {
			return nil, "", err
		}
	}
	all, err := selectLimits(ctx, s.DB.Read(), app, afterApp, afterUser, page != "", limit+1)
	if err != nil {
		return nil, "", fmt.Errorf("list limits: %w", err)
	}
	if len(all) <= limit {
		return all, "", nil
	}
	last := all[limit-1]
	next, err := wire.EncodeCursor(s.CursorKey, filter, last.AppID, last.User)
	return all[:limit], next, err
}

// splitUser reads <issuer id>/<subject>; a text without an issuer is a subject of ours.
func splitUser(user string) (issuer, sub string, err error) {
	issuer, sub, ok := strings.Cut(user, "/")
	if !ok {
		issuer, sub = jwt.OwnIssuer, user
	}
	if !jwt.IsIssuerID(issuer) || jwt.CheckSubject(sub) != nil {
		return "", "", wire.Invalid("user: expected a subject, or the id of an issuer, '/' and a subject.")
	}
	return issuer, sub, nil
}
