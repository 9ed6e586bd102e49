package direct

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/airlock-sandbox/airlock/internal/container"
	"github.com/airlock-sandbox/airlock/internal/sandbox/guest"
	"github.com/airlock-sandbox/airlock/internal/tenant"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// Service serves the commands and files of callers. All fields are set before the first call and not changed afterwards.
type Service struct {
	Containers *container.Service
	Ping       time.Duration // between signs of life of a quiet command; 0 = 10 s
	MaxFile    int64         // bounds a file that is put or got, in bytes; 0 = container.DefaultMaxFile
}

const defaultPing = 10 * time.Second

func (s *Service) maxFile() int64 { return cmp.Or(s.MaxFile, container.DefaultMaxFile) }

// use runs f with the sandbox of the container that a request names.
func (s *Service) use(r *http.Request, caller tenant.Caller, durable bool, f func(context.Context, container.Metered) error) error {
	return s.Containers.Use(r.Context(), caller, container.ID(r.PathValue("id")), durable, f)
}

// fileError translates what the guest says about a path into an answer about that path.
func (s *Service) fileError(p string, err error) error {
	var e *wire.Error
	var ge *guest.Error
	switch {
	case err == nil, errors.As(err, &e):
		return err
	case errors.Is(err, guest.ErrNotExist):
		e = &wire.Error{Type: wire.TypeNotFound, Message: "There is no file " + wire.Clip(p, 256) + " in the container.", Code: "path_not_found"}
	case errors.Is(err, guest.ErrIsDir):
		e = wire.Invalid("path: %s is a folder; add ?list=1 to list it, ?recursive=1 to delete it", wire.Clip(p, 256))
	case errors.Is(err, guest.ErrPermission):
		e = wire.Forbidden("The code in the container may not do this with %s.", wire.Clip(p, 256))
	case errors.Is(err, guest.ErrNoSpace):
		e = wire.Invalid("The workspace of the container is full.").WithCode("no_space")
	case errors.Is(err, guest.ErrTooLarge):
		e = wire.TooLarge("%s is larger than the limit of %s.", wire.Clip(p, 256), wire.FormatSize(s.maxFile()))
	case errors.Is(err, guest.ErrInvalidPath):
		e = wire.Invalid("path: %s cannot be used", wire.Clip(p, 256))
	case errors.As(err, &ge):
		e = wire.Invalid("path: %s", ge.Error())
	default:
		return err
	}
	e.NoRetry, e.Err = true, err
	return e
}
