package upstream

import (
	"context"
	"crypto/rand"
	"errors"
	"math/big"
	"net"
	"net/http"
	"strconv"
	"time"
)

// Retry says how often and how slowly a request is sent again.
type Retry struct {
	Attempts int           // sendings in all; 0 = 3, 1 = never again
	Base     time.Duration // first wait, doubled each time; 0 = 500 ms
	Max      time.Duration // longest wait; a longer retry-after ends the attempts; 0 = 20 s
	Sleep    func(ctx context.Context, d time.Duration) error
}

func (r Retry) withDefaults() Retry {
	if r.Attempts == 0 {
		r.Attempts = 3
	}
	if r.Base == 0 {
		r.Base = 500 * time.Millisecond
	}
	if r.Max == 0 {
		r.Max = 20 * time.Second
	}
	if r.Sleep == nil {
		r.Sleep = sleep
	}
	return r
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

// do sends what build makes until an answer may be used. It returns the last
// answer, whose body the caller closes, or the last error.
func (r Retry) do(ctx context.Context, c *http.Client, now func() time.Time, build func() (*http.Request, error)) (*http.Response, error) {
	for attempt := 1; ; attempt++ {
		req, err := build()
		if err != nil {
			return nil, err
		}
		resp, err := c.Do(req)
		if attempt >= r.Attempts || ctx.Err() != nil || !again(resp, err) {
			return resp, err
		}
		wait := r.wait(attempt, resp, now())
		if wait > r.Max {
			return resp, err
		}
		if resp != nil {
			_ = resp.Body.Close() // the answer is thrown away on purpose
		}
		if err := r.Sleep(ctx, wait); err != nil {
			return nil, err
		}
	}
}

// again reports whether the same request may be sent once more: nothing of the
// answer was used, and the fault is the upstream's or the network's. A
// connection that breaks after it was made may have carried the whole request,
// which the model answers and bills; only one that was not made is tried again.
func again(resp *http.Response, err error) bool {
	if err != nil {
		var op *net.OpError
		return errors.As(err, &op) && (op.Op == "dial" || op.Op == "proxyconnect")
	}
	switch resp.Header.Get("X-Should-Retry") {
	case "true":
		return resp.StatusCode >= 400
	case "false":
		return false
	}
	return resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= 500
}

// wait honours retry-after and otherwise doubles, with up to a quarter taken
// off so that many requests do not come back in one wave.
func (r Retry) wait(attempt int, resp *http.Response, now time.Time) time.Duration {
	if resp != nil {
		if d, ok := retryAfter(resp.Header, now); ok {
			return d
		}
	}
	d := min(r.Base<<(attempt-1), r.Max)
	off, err := rand.Int(rand.Reader, big.NewInt(int64(d)/4+1))
	if err != nil {
		return d
	}
	return d - time.Duration(off.Int64())
}

func retryAfter(h http.Header, now time.Time) (time.Duration, bool) {
	v := h.Get("Retry-After")
	if v == "" {
		return 0, false
	}
	if s, err := strconv.ParseFloat(v, 64); err == nil && s >= 0 && s < 1e6 {
		return time.Duration(s * float64(time.Second)), true
	}
	if t, err := http.ParseTime(v); err == nil {
		return max(t.Sub(now), 0), true
	}
	return 0, false
}
