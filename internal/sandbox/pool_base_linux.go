package sandbox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"time"
)

// A base is a member of the default class that waits on disk instead of in memory: a sandbox nobody has used, its fork
// server with everything imported, and none of a tenant's data. To continue one takes a fraction of the time that
// imports take, so the pool does that first when a member is missing, also after a restart of the server; and makes a new
// base when it is full.
//
// A base is continued once, like every snapshot. Random generators could be seeded anew in each of many copies, but the
// hash seed and the addresses of an interpreter cannot: whoever has looked at his own copy would know those of all others.
//
// The class is its name, so that a base of another image, of other limits or modules is none. That runsc, platform, guest
// and filter are those it was made with, the driver checks.

const (
	// baseLimit is how long a member may take to be written down.
	baseLimit = 20 * time.Second
	// baseCalm is the pause after that failed: each try costs as much as a member.
	baseCalm = 10 * time.Minute
)

// baseID is the name under which the base of a class is kept.
func baseID(c Class) string {
	sum := sha256.Sum256([]byte(c.key()))
	return "base-" + hex.EncodeToString(sum[:16])
}

// continueBase makes a member of the base of its class; nil if there is none, or it cannot be continued.
func (p *Pool) continueBase(ctx context.Context, class Class, spec Spec) *Sandbox {
	r, ok := p.Driver.(Restorer)
	if !ok || p.Bases == nil {
		return nil
	}
	dir, err := p.Bases.Take(baseID(class), "")
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	var sb *Sandbox
	if err == nil {
		sb, err = r.Restore(ctx, spec, dir)
		err = errors.Join(err, os.RemoveAll(dir))
	}
	if err != nil && ctx.Err() == nil {
		p.log().InfoContext(ctx, "base of the pool not continued", "error", err)
	}
	return sb
}

// tendBase makes the base that is missing, and removes those of other classes, or all while there is no disk for them.
func (p *Pool) tendBase(ctx context.Context) {
	if _, ok := p.Driver.(Restorer); !ok || p.Bases == nil || p.Default == nil || !p.atRest() {
		return
	}
	class, err := p.Default()
	if err != nil {
		return
	}
	id := baseID(class)
	if p.AdmitBase != nil && p.AdmitBase(ctx) != nil {
		id = ""
	}
	there, err := p.onlyBase(id)
	if err == nil && id != "" && !there && (p.Admit == nil || p.Admit(ctx) == nil) {
		err = p.makeBase(ctx, class, id)
	}
	if err != nil && ctx.Err() == nil {
		p.log().WarnContext(ctx, "make base of the pool", "error", err)
	}
	if err != nil {
		p.baseCalm = time.Now().Add(baseCalm)
	}
}

// onlyBase removes all bases but one, and tells whether that is there.
func (p *Pool) onlyBase(id string) (there bool, err error) {
	ids, err := p.Bases.List()
	for _, other := range ids {
		if other == id {
			there = true
		} else {
			err = errors.Join(err, p.Bases.Remove(other))
		}
	}
	return there, err
}

// makeBase makes a member and writes it down.
func (p *Pool) makeBase(ctx context.Context, class Class, id string) error {
	began := time.Now()
	m, err := p.makeMember(ctx, class)
	if err != nil {
		return err
	}
	defer m.Discard()
	ctx, cancel := context.WithTimeout(ctx, baseLimit)
	defer cancel()
	use, err := m.Sandbox.Usage(ctx)
	if err == nil {
		err = p.Bases.Keep(id, "", use.Memory-use.Reclaimable, func(dir string) error {
			return m.Sandbox.checkpoint(ctx, dir, func(context.Context) {})
		})
	}
	if err == nil {
		err = p.Bases.Seal(id, "")
	}
	if err != nil {
		return errors.Join(err, p.Bases.Remove(id))
	}
	p.log().DebugContext(ctx, "base of the pool ready", "size_bytes", p.Bases.Size(id), "took", time.Since(began))
	return nil
}

// atRest tells whether the pool has nothing better to do at the moment.
func (p *Pool) atRest() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	return !p.closed && now.After(p.calm) && now.After(p.baseCalm)
}
