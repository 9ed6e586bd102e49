package tenant

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/airlock-sandbox/airlock/internal/db"
	"github.com/airlock-sandbox/airlock/internal/jwt"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// issuersFresh is how long the issuers of the database are used as they were read; another server may have changed them.
const issuersFresh = 10 * time.Second

// issuerSet is whose tokens are taken.
type issuerSet struct {
	byName map[string]*jwt.Verifier // by the claim iss
	byID   map[string]*jwt.Verifier
}

// issuerState is the issuers as they were read last.
type issuerState struct {
	mu    sync.Mutex
	fixed []jwt.Issuer // of the settings, with their keys
	set   *issuerSet
	read  time.Time
	// ready are the verifiers by their settings: an unchanged issuer keeps the keys it fetched.
	ready map[string]*jwt.Verifier
}

// ReadIssuers checks the issuers of the settings, reads their keys and notes which id belongs to which issuer. The server
// calls it before it serves.
func (s *Service) ReadIssuers(ctx context.Context) error {
	fixed := slices.Clone(s.Issuers)
	for n := range fixed {
		i := &fixed[n]
		if err := i.Validate(); err != nil {
			return fmt.Errorf("issuers.%d.%w", n, inWords(err))
		}
		if i.KeyFile != "" {
			b, err := os.ReadFile(i.KeyFile)
			if err != nil {
				return fmt.Errorf("issuers.%d.key_file: %w", n, err)
			}
			i.Key = string(b)
			if _, err := jwt.ParsePublicKey(i.Key, i.Alg); err != nil {
				return fmt.Errorf("issuers.%d.key_file: %w", n, err)
			}
		}
		for _, o := range fixed[:n] {
			if o.ID == i.ID || o.Issuer == i.Issuer {
				return fmt.Errorf("issuers.%d: the id or the issuer is there twice", n)
			}
		}
		if i.Issuer == s.tokenIssuer() {
			return fmt.Errorf("issuers.%d.issuer: %q is the issuer of our own tokens (identity.issuer)", n, i.Issuer)
		}
		if err := s.reserveIssuer(ctx, i.ID, i.Issuer, ""); err != nil {
			return fmt.Errorf("issuers.%d.%w", n, inWords(err))
		}
	}
	s.issuers.mu.Lock()
	defer s.issuers.mu.Unlock()
	s.issuers.fixed, s.issuers.set = fixed, nil
	return nil
}

// inWords is an error without the type it would have in an answer, for those who read settings.
func inWords(err error) error {
	if we, ok := errors.AsType[*wire.Error](err); ok {
		return errors.New(we.Message)
	}
	return err
}

func (s *Service) tokenIssuer() string {
	if s.TokenIssuer != "" {
		return s.TokenIssuer
	}
	return jwt.OwnIssuer
}

// reserveIssuer ties an id to an issuer for good and stores its settings if there are any.
func (s *Service) reserveIssuer(ctx context.Context, id, issuer, settings string) error {
	err := s.DB.RunTx(ctx, func(ctx context.Context, tx db.Tx) error {
		if settings != "" {
			if err := s.checkTaken(ctx, tx, id, issuer); err != nil {
				return err
			}
		}
		row := &issuerRow{ID: id, Issuer: issuer, Settings: settings, CreatedAt: s.now().UnixMicro()}
		if err := insertIssuer(ctx, tx, row); err != nil {
			return err
		}
		have, err := selectIssuer(ctx, tx, id)
		if err != nil {
			return err
		}
		if have.Issuer != issuer {
			return wire.Conflict("id: %s stands for the issuer %s, whose users own files by it; choose another.", id, have.Issuer)
		}
		if settings == "" || have.Settings == settings {
			return nil
		}
		return updateIssuer(ctx, tx, id, settings)
	})
	var we *wire.Error
	if err != nil && !errors.As(err, &we) {
		return fmt.Errorf("store issuer: %w", err)
	}
	return err
}

// checkTaken refuses an issuer that has another id, also when both are given one at the same moment.
func (s *Service) checkTaken(ctx context.Context, tx db.Tx, id, issuer string) error {
	if err := lockOldestApp(ctx, s.DB, tx); err != nil && !errors.Is(err, db.ErrNotFound) {
		return err
	}
	rows, err := selectIssuers(ctx, tx)
	if err != nil {
		return err
	}
	for _, r := range rows {
		if r.Settings != "" && r.Issuer == issuer && r.ID != id {
			return wire.Conflict("issuer: it is taken already, as %s.", r.ID)
		}
	}
	return nil
}

// issuerSet gives the issuers, ours among them.
func (s *Service) issuerSet(ctx context.Context) (*issuerSet, error) {
	st := &s.issuers
	st.mu.Lock()
	defer st.mu.Unlock()
	now := s.now()
	age := now.Sub(st.read)
	if st.set != nil && age >= 0 && age < issuersFresh {
		return st.set, nil
	}
	all := slices.Clone(st.fixed)
	rows, err := selectIssuers(ctx, s.DB.Read())
	if err != nil {
		return nil, fmt.Errorf("read issuers: %w", err)
	}
	for _, r := range rows {
		var i jwt.Issuer
		if r.Settings == "" || isFixed(st.fixed, r) {
			continue
		}
		if err := json.Unmarshal([]byte(r.Settings), &i); err != nil {
			return nil, fmt.Errorf("read issuer %s: %w", r.ID, err)
		}
		all = append(all, i)
	}
	set := &issuerSet{byName: map[string]*jwt.Verifier{}, byID: map[string]*jwt.Verifier{}}
	ready := map[string]*jwt.Verifier{}
	for _, i := range all {
		v, key, err := s.prepare(i)
		if err != nil {
			return nil, fmt.Errorf("issuer %s: %w", i.ID, err)
		}
		ready[key], set.byName[i.Issuer], set.byID[i.ID] = v, v, v
	}
	own := jwt.NewVerifier(jwt.Issuer{ID: jwt.OwnIssuer, Issuer: s.tokenIssuer(), Alg: jwt.ES256}, s.own())
	set.byName[own.Issuer.Issuer], set.byID[jwt.OwnIssuer] = own, own
	st.set, st.ready, st.read = set, ready, now
	return set, nil
}

// isFixed: what the settings say of an issuer counts for more than what the database says.
func isFixed(fixed []jwt.Issuer, r *issuerRow) bool {
	return slices.ContainsFunc(fixed, func(i jwt.Issuer) bool { return i.ID == r.ID || i.Issuer == r.Issuer })
}

// prepare makes an issuer ready, or gives the verifier it has.
func (s *Service) prepare(i jwt.Issuer) (*jwt.Verifier, string, error) {
	raw, err := json.Marshal(i)
	if err != nil {
		return nil, "", err
	}
	key := string(raw)
	if v := s.issuers.ready[key]; v != nil {
		return v, key, nil
	}
	if i.JWKS != "" {
		return jwt.NewVerifier(i, jwt.NewRemote(i, s.Transport, s.now, s.Log)), key, nil
	}
	public, err := jwt.ParsePublicKey(i.Key, i.Alg)
	if err != nil {
		return nil, "", err
	}
	return jwt.NewVerifier(i, jwt.Static{Key: public}), key, nil
}

// ListIssuers gives the issuers whose tokens are taken, without our own, by id.
func (s *Service) ListIssuers(ctx context.Context) ([]jwt.Issuer, error) {
	set, err := s.issuerSet(ctx)
	if err != nil {
		return nil, err
	}
	var out []jwt.Issuer
	for _, id := range slices.Sorted(maps.Keys(set.byID)) {
		if id != jwt.OwnIssuer {
			out = append(out, set.byID[id].Issuer)
		}
	}
	return out, nil
}

// PutIssuer takes the tokens of an issuer from now on, or changes how they are verified. An id that stood for another issuer
// is a 409, as is one of the settings file.
func (s *Service) PutIssuer(ctx context.Context, i jwt.Issuer) error {
	if i.KeyFile != "" {
		return wire.Invalid("key_file: only settings name files; send the text as key.")
	}
	if err := i.Validate(); err != nil {
		return err
	}
	set, err := s.issuerSet(ctx)
	if err != nil {
		return err
	}
	if have := set.byName[i.Issuer]; have != nil && have.ID != i.ID {
		return wire.Conflict("issuer: it is taken already, as %s.", have.ID)
	}
	if s.inSettings(i.ID) {
		return wire.Conflict("id: %s stands in the server's settings.", i.ID)
	}
	raw, err := json.Marshal(i)
	if err != nil {
		return fmt.Errorf("encode issuer: %w", err)
	}
	if err := s.reserveIssuer(ctx, i.ID, i.Issuer, string(raw)); err != nil {
		return err
	}
	s.issuers.forget()
	return nil
}

// tryKeys fetches the keys of an issuer that was just put, and tells why it cannot; "" where it can, or has them.
func (s *Service) tryKeys(ctx context.Context, i jwt.Issuer) string {
	if i.JWKS == "" {
		return ""
	}
	set, err := s.issuerSet(ctx)
	if err != nil || set.byID[i.ID] == nil {
		return "" // the next token tells
	}
	remote, ok := set.byID[i.ID].Source.(*jwt.Remote)
	if !ok {
		return ""
	}
	return remote.Try(ctx)
}

// RemoveIssuer takes no token of an issuer any more. What its users own stays theirs: the id remains tied to the issuer.
func (s *Service) RemoveIssuer(ctx context.Context, id string) error {
	noIssuer := &wire.Error{Type: wire.TypeNotFound, Message: "There is no such issuer."}
	if !jwt.IsIssuerID(id) {
		return noIssuer
	}
	if s.inSettings(id) {
		return wire.Conflict("id: %s stands in the server's settings.", id)
	}
	err := s.DB.RunDelete(ctx, func(ctx context.Context, tx db.Tx) error {
		row, err := selectIssuer(ctx, tx, id)
		if err != nil {
			return err
		}
		if row.Settings == "" {
			return db.ErrNotFound
		}
		return updateIssuer(ctx, tx, id, "")
	})
	if errors.Is(err, db.ErrNotFound) {
		return noIssuer
	}
	if err != nil {
		return fmt.Errorf("remove issuer: %w", err)
	}
	s.issuers.forget()
	return nil
}

func (s *Service) inSettings(id string) bool {
	s.issuers.mu.Lock()
	defer s.issuers.mu.Unlock()
	return slices.ContainsFunc(s.issuers.fixed, func(i jwt.Issuer) bool { return i.ID == id })
}

func (st *issuerState) forget() {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.set = nil
}
