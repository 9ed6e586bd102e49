package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"syscall" //nolint:depguard // two names of errors; no call is made
	"time"
	"unicode/utf8"
)

// ErrorType is the value of error.type in a body. Each has one status.
type ErrorType string

// The error types of the Messages API. The zero value stands for TypeAPI.
const (
	TypeInvalidRequest ErrorType = "invalid_request_error"
	TypeAuthentication ErrorType = "authentication_error"
	TypeBilling        ErrorType = "billing_error"
	TypePermission     ErrorType = "permission_error"
	TypeNotFound       ErrorType = "not_found_error"
	TypeConflict       ErrorType = "conflict_error"
	TypeTooLarge       ErrorType = "request_too_large"
	TypeRateLimit      ErrorType = "rate_limit_error"
	TypeAPI            ErrorType = "api_error"
	TypeTimeout        ErrorType = "timeout_error"
	TypeOverloaded     ErrorType = "overloaded_error"
)

var statuses = map[ErrorType]int{
	TypeInvalidRequest: http.StatusBadRequest,
	TypeAuthentication: http.StatusUnauthorized,
	TypeBilling:        http.StatusPaymentRequired,
	TypePermission:     http.StatusForbidden,
	TypeNotFound:       http.StatusNotFound,
	TypeConflict:       http.StatusConflict,
	TypeTooLarge:       http.StatusRequestEntityTooLarge,
	TypeRateLimit:      http.StatusTooManyRequests,
	TypeAPI:            http.StatusInternalServerError,
	TypeTimeout:        http.StatusGatewayTimeout,
	TypeOverloaded:     529,
}

// internalText is what a client reads when the cause is ours. It names nothing on purpose.
const internalText = "Internal server error. The request id identifies it in the server's log."

// Error is a request that failed before the first byte of its answer, or the content of an SSE error
// frame. Message is a sentence for the client; Err is for the log only.
type Error struct {
	Type    ErrorType
	Message string
	// Code is details.error_code. Empty means the body has no details, unless Details is set.
	Code string
	// Details holds further members of details, beside error_code.
	Details map[string]any
	// Status overrides the status that belongs to Type. 0 means none.
	Status int
	// RetryAfter becomes the retry-after header, rounded up to seconds. 0 means no header.
	RetryAfter time.Duration
	// NoRetry sends x-should-retry: false. SDKs otherwise repeat 409, 429 and 5xx by themselves.
	NoRetry bool
	// Err is the cause. It is logged with the request id and never sent.
	Err error
}

// Error gives the text for logs; it includes the cause.
func (e *Error) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("%s: %s: %v", e.Type, e.Message, e.Err)
	}
	return fmt.Sprintf("%s: %s", e.Type, e.Message)
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// HTTPStatus is the status the error is answered with.
func (e *Error) HTTPStatus() int {
	if e.Status != 0 {
		return e.Status
	}
	if s, ok := statuses[e.Type]; ok {
		return s
	}
	return http.StatusInternalServerError
}

// WithCode sets details.error_code and returns e, for use in a return statement.
func (e *Error) WithCode(code string) *Error {
	e.Code = code
	return e
}

// Invalid is a 400. The text names the parameter's path first and says what would be right.
func Invalid(format string, args ...any) *Error {
	return &Error{Type: TypeInvalidRequest, Message: fmt.Sprintf(format, args...)}
}

// Unauthorized is a 401.
func Unauthorized(format string, args ...any) *Error {
	return &Error{Type: TypeAuthentication, Message: fmt.Sprintf(format, args...)}
}

// Forbidden is a 403: the credential is good, and not for this.
func Forbidden(format string, args ...any) *Error {
	return &Error{Type: TypePermission, Message: fmt.Sprintf(format, args...)}
}

// NotFound is the one answer for an unknown, foreign or deleted container or file. It takes no
// argument, so that the bodies of these cases cannot differ.
func NotFound() *Error {
	return &Error{Type: TypeNotFound, Message: "Not found"}
}

// Conflict is a 409 that must not be retried.
func Conflict(format string, args ...any) *Error {
	return &Error{Type: TypeConflict, Message: fmt.Sprintf(format, args...), NoRetry: true}
}

// TooLarge is a 413. The text names the limit.
func TooLarge(format string, args ...any) *Error {
	return &Error{Type: TypeTooLarge, Message: fmt.Sprintf(format, args...)}
}

// RateLimited is a 429 that may be retried after the given time.
func RateLimited(after time.Duration, format string, args ...any) *Error {
	return &Error{Type: TypeRateLimit, Message: fmt.Sprintf(format, args...), RetryAfter: after}
}

// Overloaded is a 529 that may be retried after the given time.
func Overloaded(after time.Duration, format string, args ...any) *Error {
	return &Error{Type: TypeOverloaded, Message: fmt.Sprintf(format, args...), RetryAfter: after}
}

// Internal is a 500 with the fixed sentence; err goes to the log.
func Internal(err error) *Error {
	return &Error{Type: TypeAPI, Message: internalText, Err: err}
}

// AsError gives the *Error inside err. Any other error is a 529 if a full disk is its cause, which passes, and wrapped with
// Internal if not. nil stays nil.
func AsError(err error) *Error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	if diskFull(err) {
		e := Overloaded(retryDiskFull, "The server's disk is full, so this could not be done. Reading works, and deleting makes room.").WithCode(CodeDiskFull)
		e.Err = err
		return e
	}
	return Internal(err)
}

// CodeDiskFull is the code of a refusal for which the server's disk is the reason.
const CodeDiskFull = "disk_full"

const retryDiskFull = time.Minute

// diskFull recognises a full disk under whatever it was met by: a file, a workspace, or a database, to whose errors package
// db gives the same form.
func diskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// maxMessage bounds a message in bytes: many quote what the client or an upstream sent.
const maxMessage = 4 << 10

func bounded(message string) string {
	message = strings.ToValidUTF8(message, "\uFFFD")
	if len(message) <= maxMessage {
		return message
	}
	return Cut(message, maxMessage) + "…"
}

// Cut gives the first bytes of a text, at most so many, without splitting a character.
func Cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most]
}

// Clip keeps what a caller sent short enough for a message: the first bytes, at most so many, and dots where there was more.
func Clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return Cut(text, most) + "..."
}

type errorBody struct {
	Type      string      `json:"type"`
	Error     errorObject `json:"error"`
	RequestID string      `json:"request_id"`
}

type errorObject struct {
	Type    ErrorType      `json:"type"`
	Message string         `json:"message"`
	Details map[string]any `json:"details,omitempty"`
}

// ErrorBody encodes err as a body, with the request id of ctx. It serves SSE error frames, which have
// the same shape as a plain body.
func ErrorBody(ctx context.Context, err error) []byte {
	e := AsError(err)
	t := e.Type
	if t == "" {
		t = TypeAPI
	}
	o := errorObject{Type: t, Message: bounded(e.Message)}
	if e.Code != "" || len(e.Details) > 0 {
		o.Details = map[string]any{}
		maps.Copy(o.Details, e.Details)
		if e.Code != "" {
			o.Details["error_code"] = e.Code
		}
	}
	b, jerr := encodeJSON(errorBody{Type: "error", Error: o, RequestID: RequestID(ctx)})
	if jerr != nil {
		// Details held something JSON cannot express; the message alone always encodes.
		o.Details = nil
		b, jerr = json.Marshal(errorBody{Type: "error", Error: o, RequestID: RequestID(ctx)})
		if jerr != nil {
			return []byte(`{"type":"error","error":{"type":"api_error","message":"Internal server error."}}`)
		}
	}
	return b
}
