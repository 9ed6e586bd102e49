package sandbox

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"
)

const (
	// claimLimit is how long a claim waits for members to tell their time; maxLate is how often one may let it pass.
	claimLimit = 500 * time.Millisecond
	maxLate    = 2
	// clockDrift is how far a guest's clock may be off.
	clockDrift = time.Second
)

// Claim gives the caller a member of the class, or nil if none is ready. It makes nothing and waits for nothing but the
// answer of a member, in all for half a second at most. A member that is dead or lives in another time is discarded; one that
// has not answered when the time is over, or the caller has gone, stays.
func (p *Pool) Claim(ctx context.Context, c Class) *Member {
	if p == nil || p.Size <= 0 {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, claimLimit)
	defer cancel()
	for limited.Err() == nil {
		m := p.take(c)
		if m == nil {
			return nil
		}
		err := p.check(limited, m)
		if err == nil {
			p.askedOut(m)
			return m
		}
		if ctx.Err() == nil && limited.Err() != nil {
			m.late++
		}
		if limited.Err() != nil && m.late < maxLate {
			p.putBack(m)
			return nil
		}
		p.log().WarnContext(ctx, "pool member discarded", "sandbox_id", m.Sandbox.ID(), "error", err)
		p.askedOut(m)
		m.Discard()
	}
	return nil
}

// askedOut ends what take began: a claim has heard a member, or has given it up.
func (p *Pool) askedOut(m *Member) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.heard[m.key]--
	p.poke()
}

// putBack makes a member ready again that nobody has used. The next claim asks another first.
func (p *Pool) putBack(m *Member) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.heard[m.key]--
	p.ready = append(p.ready, m)
	if p.closed {
		p.spend(func(*Member) bool { return true })
	}
}

// take removes the oldest living member of a class; it counts as there until askedOut or putBack.
func (p *Pool) take(c Class) *Member {
	key := c.key()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.cancel == nil {
		return nil
	}
	p.remember(key, c)
	p.poke()
	for n, m := range p.ready {
		if m.key == key && m.alive() {
			p.ready = slices.Delete(p.ready, n, n+1)
			if p.heard == nil {
				p.heard = map[string]int{}
			}
			p.heard[key]++
			if now := time.Now(); now.After(p.calm) { // not moved on by claims that follow each other
				p.calm = now.Add(cmp.Or(p.Pause, 500*time.Millisecond))
			}
			return m
		}
	}
	return nil
}

// remember notes under mu what is asked for.
func (p *Pool) remember(key string, c Class) {
	if p.asked == nil {
		p.asked = map[string]*want{}
	}
	p.asked[key] = &want{class: c, at: time.Now()}
	for len(p.asked) > maxAsked+1 { // the default is among them
		oldest := ""
		for k, w := range p.asked {
			if oldest == "" || w.at.Before(p.asked[oldest].at) {
				oldest = k
			}
		}
		delete(p.asked, oldest)
	}
}

// check is the look at checkout: a guest that stood still for long, or was made of a snapshot, may live in another time.
func (p *Pool) check(ctx context.Context, m *Member) error {
	before := p.now()
	told, err := m.Sandbox.Clock(ctx)
	if err != nil {
		return err
	}
	if told.Before(before.Add(-clockDrift)) || told.After(p.now().Add(clockDrift)) {
		return fmt.Errorf("its clock says %s", told.UTC().Format(time.RFC3339Nano))
	}
	return nil
}
