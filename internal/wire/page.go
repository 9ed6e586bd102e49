package wire

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"strings"
)

const (
	cursorPrefix = "page_"
	macBytes     = 16
)

// CursorKey signs list cursors. All replicas of one deployment share it.
type CursorKey []byte

// NewCursorKey makes a random key.
func NewCursorKey() CursorKey {
	k := make([]byte, 32)
	_, _ = rand.Read(k) // never fails since Go 1.24
	return k
}

// EncodeCursor makes an opaque cursor out of values. filter names the list and everything that narrows
// it (caller, parameters): a cursor is good for the same filter only.
func EncodeCursor(key CursorKey, filter string, values ...any) (string, error) {
	raw, err := encodeJSON(values)
	if err != nil {
		return "", err
	}
	sum := cursorMAC(key, filter, raw)
	return cursorPrefix + base64.RawURLEncoding.EncodeToString(append(sum, raw...)), nil
}

// DecodeCursor fills the pointers in values from a cursor that EncodeCursor made with the same key and
// filter. Everything else is the same 400.
func DecodeCursor(key CursorKey, filter, cursor string, values ...any) error {
	bad := Invalid("page: invalid page token.")
	text, ok := strings.CutPrefix(cursor, cursorPrefix)
	if !ok {
		return bad
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(b) < macBytes {
		return bad
	}
	sum, raw := b[:macBytes], b[macBytes:]
	if !hmac.Equal(sum, cursorMAC(key, filter, raw)) {
		return bad
	}
	var parts []json.RawMessage
	if json.Unmarshal(raw, &parts) != nil || len(parts) != len(values) {
		return bad
	}
	for i, p := range parts {
		if json.Unmarshal(p, values[i]) != nil {
			return bad
		}
	}
	return nil
}

func cursorMAC(key CursorKey, filter string, raw []byte) []byte {
	m := hmac.New(sha256.New, key)
	m.Write([]byte(filter))
	m.Write([]byte{0})
	m.Write(raw)
	return m.Sum(nil)[:macBytes]
}
