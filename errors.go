package airlock

import (
	"errors"
	"net/http"

	"github.com/anthropics/anthropic-sdk-go/v2"
)

// IsNotFound says that there is no such file or container for this caller. Unknown ones, those of others and deleted ones answer
// alike; of an own one that has expired the error code is file_expired or container_expired.
func IsNotFound(err error) bool {
	return is(err, func(e *anthropic.Error) bool {
		return e.StatusCode == http.StatusNotFound || e.Type() == anthropic.ErrorTypeNotFoundError
	})
}

// IsScopeMismatch says that a call with [ScopeApp] would open a file or container that was made with [ScopeUser].
func IsScopeMismatch(err error) bool {
	return is(err, func(e *anthropic.Error) bool { return e.ErrorCode() == "scope_mismatch" })
}

// IsInsufficientCredits says that whoever pays for the call has not enough left.
func IsInsufficientCredits(err error) bool {
	return is(err, func(e *anthropic.Error) bool {
		return e.StatusCode == http.StatusPaymentRequired || e.ErrorCode() == "insufficient_credits"
	})
}

func is(err error, what func(*anthropic.Error) bool) bool {
	e, ok := errors.AsType[*anthropic.Error](err)
	return ok && what(e)
}
