package wire

import "time"

// Micros is a time as it is stored: microseconds since 1970, UTC.
type Micros int64

// MicrosOf cuts t to microseconds.
func MicrosOf(t time.Time) Micros { return Micros(t.UnixMicro()) }

// Time gives the instant, in UTC.
func (m Micros) Time() time.Time { return time.UnixMicro(int64(m)).UTC() }

// FormatTime gives RFC 3339 in UTC with exactly six fraction digits and Z, as the hosted API writes it.
func FormatTime(t time.Time) string {
	return t.UTC().Format("2006-01-02T15:04:05.000000Z")
}

// FormatTimePtr is FormatTime for a time that may be absent; nil encodes as null.
func FormatTimePtr(t *time.Time) *string {
	if t == nil {
		return nil
	}
	s := FormatTime(*t)
	return &s
}
