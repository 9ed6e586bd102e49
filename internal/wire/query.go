package wire

import (
	"net/url"
	"strconv"
)

// QueryLimit reads the list parameter limit: an integer from 1 to most, fallback when absent.
func QueryLimit(q url.Values, fallback, most int) (int, error) {
	v, ok := q["limit"]
	if !ok {
		return fallback, nil
	}
	n, err := strconv.Atoi(v[0])
	if err != nil || len(v) != 1 || n < 1 || n > most {
		return 0, Invalid("limit: expected one integer from 1 to %d.", most)
	}
	return n, nil
}

// QueryOne reads a parameter that may be given once; ok is false when it is absent.
func QueryOne(q url.Values, name string) (value string, ok bool, err error) {
	v, ok := q[name]
	if !ok {
		return "", false, nil
	}
	if len(v) != 1 {
		return "", false, Invalid("%s: given more than once.", name)
	}
	return v[0], true, nil
}
