package main

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// span is a duration that may be given in days: 30d, 1d12h.
type span time.Duration

// durationVar is a flag of a duration; not given, it is 0.
func durationVar(f *pflag.FlagSet, into *time.Duration, name, usage string) {
	f.Var((*span)(into), name, usage)
}

func (s *span) Set(text string) error {
	days, rest, ok := strings.Cut(text, "d")
	if !ok {
		d, err := time.ParseDuration(text)
		*s = span(d)
		return err
	}
	n, err := strconv.ParseUint(days, 10, 64)
	if err != nil || n > math.MaxInt64/uint64(24*time.Hour) {
		return fmt.Errorf("%q is no number of days", days)
	}
	var d time.Duration
	if rest != "" {
		if d, err = time.ParseDuration(rest); err != nil || d < 0 {
			return fmt.Errorf("%q is not the rest of a duration", rest)
		}
	}
	sum := time.Duration(n)*24*time.Hour + d //nolint:durationcheck // n counts days
	if sum < 0 {
		return fmt.Errorf("%q is too long", text)
	}
	*s = span(sum)
	return nil
}

func (s *span) String() string {
	if *s == 0 {
		return "0"
	}
	return time.Duration(*s).String()
}

func (s *span) Type() string { return "duration" }

var ofServer = regexp.MustCompile(`^(ttl|overlap)_seconds: expected an integer from (\d+) to (\d+)\.$`)

// inFlags says a server's word about a parameter as one about the flag that filled it.
func inFlags(message string) string {
	if m := ofServer.FindStringSubmatch(message); m != nil {
		return fmt.Sprintf("--%s: expected a duration from %s to %s.", m[1], inDays(m[2]), inDays(m[3]))
	}
	for name, flag := range map[string]string{"requests_per_minute: ": "--requests: ", "messages_in_flight: ": "--messages: "} {
		if rest, ok := strings.CutPrefix(message, name); ok {
			return flag + rest
		}
	}
	return message
}

// inDays writes whole seconds as they can be given to a flag.
func inDays(seconds string) string {
	n, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return seconds + "s"
	}
	const day = 24 * 60 * 60
	switch {
	case n > 0 && n%day == 0:
		return fmt.Sprintf("%dd", n/day)
	case n > 0 && n%3600 == 0:
		return fmt.Sprintf("%dh", n/3600)
	}
	return fmt.Sprintf("%ds", n)
}
