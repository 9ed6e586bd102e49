package container

import (
	"context"
	"encoding/base64"
	"errors"
	"io"
	"math"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/sandbox/guest"
	"github.com/airlock-sandbox/airlock/internal/tenant"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// ExecParams is one command of the direct door.
type ExecParams struct {
	Argv           []string          `json:"argv"`
	Command        string            `json:"command"` // run by bash
	Cwd            string            `json:"cwd"`
	Env            map[string]string `json:"env"`
	Stdin          *string           `json:"stdin"`
	StdinBase64    *string           `json:"stdin_base64"`
	TimeoutSeconds *float64          `json:"timeout_seconds"`
}

// Validate checks everything that needs no sandbox; longest is the longest time limit.
func (p *ExecParams) Validate(longest time.Duration) error {
	switch {
	case len(p.Argv) > 0 && p.Command != "":
		return wire.Invalid("argv: give argv or command, not both")
	case len(p.Argv) == 0 && p.Command == "":
		return wire.Invalid("argv: give argv or command")
	case len(p.Argv) > 0 && p.Argv[0] == "":
		return wire.Invalid("argv.0: the program is empty")
	case p.Stdin != nil && p.StdinBase64 != nil:
		return wire.Invalid("stdin: give stdin or stdin_base64, not both")
	case p.Cwd != "" && !path.IsAbs(p.Cwd):
		return wire.Invalid("cwd: %q is not an absolute path", clip(p.Cwd, 64))
	}
	if name := p.withNUL(); name != "" {
		return wire.Invalid("%s: a NUL character cannot be part of a command", name)
	}
	for k, v := range p.Env {
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.ContainsRune(v, 0) {
			return wire.Invalid("env: %q cannot be an environment variable", clip(k, 64))
		}
	}
	if t := p.TimeoutSeconds; t != nil && (math.IsNaN(*t) || *t <= 0 || *t > longest.Seconds()) {
		return wire.Invalid("timeout_seconds: must be above 0 and at most %g", longest.Seconds())
	}
	return nil
}

// withNUL names the first parameter with a NUL character in it, "" when none has one.
func (p *ExecParams) withNUL() string {
	if strings.ContainsRune(p.Command, 0) {
		return "command"
	}
	if strings.ContainsRune(p.Cwd, 0) {
		return "cwd"
	}
	for i, s := range p.Argv {
		if strings.ContainsRune(s, 0) {
			return "argv." + strconv.Itoa(i)
		}
	}
	return ""
}

// timeout is 0, the longest, only when none was asked for.
func (p *ExecParams) timeout() time.Duration {
	if p.TimeoutSeconds == nil {
		return 0
	}
	return max(time.Duration(*p.TimeoutSeconds*float64(time.Second)), time.Nanosecond)
}

func (p *ExecParams) stdin() (io.Reader, error) {
	switch {
	case p.Stdin != nil:
		return strings.NewReader(*p.Stdin), nil
	case p.StdinBase64 != nil:
		b, err := base64.StdEncoding.DecodeString(*p.StdinBase64)
		if err != nil {
			return nil, wire.Invalid("stdin_base64: not base64 in the standard alphabet")
		}
		return strings.NewReader(string(b)), nil
	}
	return nil, nil
}

// Exec runs one command in a turn of its own and writes its output as it comes. Processes that the command leaves behind
// live on until the sandbox ends. Errors before the first byte of output are for the caller of the request.
func (s *Service) Exec(ctx context.Context, caller tenant.Caller, id ID, p ExecParams, stdout, stderr io.Writer) (sandbox.Result, error) {
	return s.exec(ctx, caller, id, p, stdout, stderr, func(context.Context) func() { return func() {} })
}

// exec is Exec with a function that is called, with the context of the turn, just before the command starts; what it gives is
// called when the command has ended, while the turn still lasts.
func (s *Service) exec(ctx context.Context, caller tenant.Caller, id ID, p ExecParams, stdout, stderr io.Writer,
	begin func(context.Context) (stop func()),
) (sandbox.Result, error) {
	var none sandbox.Result
	if err := p.Validate(s.limits().WithDefaults().Wall); err != nil {
		return none, err
	}
	stdin, err := p.stdin()
	if err != nil {
		return none, err
	}
	c := sandbox.Command{
		Argv: p.Argv, Shell: p.Command, Cwd: p.Cwd, Env: p.Env, Stdin: stdin, Stdout: stdout, Stderr: stderr, Keep: true,
		Timeout: p.timeout(),
	}
	var res sandbox.Result
	// A command's files become durable with the next pass of the background loop, a second later or as long as the disk
	// takes: waiting for the disk would cost more than most commands.
	err = s.inLease(ctx, caller, id, false, func(ctx context.Context, l *Lease, sb *sandbox.Sandbox) (err error) {
		defer begin(ctx)()
		res, err = Metered{sb, l, KindExec}.Exec(ctx, c)
		return startError(err)
	})
	return res, err
}

// startError answers a command that could not begin with 400: no exit code is made up for it.
func startError(err error) error {
	var ge *guest.Error
	if !errors.As(err, &ge) || errors.Is(err, guest.ErrGone) {
		return err
	}
	e := wire.Invalid("argv: the command could not be started: %s", ge.Error()).WithCode("command_not_started")
	e.Err = err
	return e
}

// inTurn is inLease for what needs the sandbox alone.
func (s *Service) inTurn(ctx context.Context, caller tenant.Caller, id ID, durable bool,
	f func(context.Context, *sandbox.Sandbox) error,
) error {
	return s.inLease(ctx, caller, id, durable, func(ctx context.Context, _ *Lease, sb *sandbox.Sandbox) error { return f(ctx, sb) })
}

// inLease runs f with the sandbox of a container and tells the truth about a sandbox that ended meanwhile. The context that
// f gets ends with the container, too.
func (s *Service) inLease(ctx context.Context, caller tenant.Caller, id ID, durable bool,
	f func(context.Context, *Lease, *sandbox.Sandbox) error,
) error {
	if id == "" {
		return id.Validate()
	}
	l, err := s.Acquire(ctx, caller, id)
	if err != nil {
		return err
	}
	defer l.release(ctx, durable)
	turn, cancel := l.Context(ctx)
	defer cancel()
	if err := l.unsavedError(turn); err != nil {
		return err
	}
	sb, err := l.Sandbox(turn)
	if err != nil && l.ended.Err() != nil {
		return context.Cause(l.ended)
	}
	if err != nil {
		return err
	}
	err = f(turn, l, sb)
	if err != nil && l.ended.Err() != nil {
		// Which of the two was noticed first, the end of the turn or that of its sandbox, is chance.
		return GoneError(sandbox.ExitDestroyed, errors.Join(sandbox.ErrGone, err))
	}
	return goneError(sb, err)
}

// fileError translates what the guest says about a path into an answer about that path.
func (s *Service) fileError(p string, err error) error {
	var e *wire.Error
	var ge *guest.Error
	switch {
	case err == nil, errors.As(err, &e):
		return err
	case errors.Is(err, guest.ErrNotExist):
		e = &wire.Error{Type: wire.TypeNotFound, Message: "There is no file " + clip(p, 256) + " in the container.", Code: "path_not_found"}
	case errors.Is(err, guest.ErrIsDir):
		e = wire.Invalid("path: %s is a folder; add ?list=1 to list it, ?recursive=1 to delete it", clip(p, 256))
	case errors.Is(err, guest.ErrPermission):
		e = wire.Forbidden("The code in the container may not do this with %s.", clip(p, 256))
	case errors.Is(err, guest.ErrNoSpace):
		e = wire.Invalid("The workspace of the container is full.").WithCode("no_space")
	case errors.Is(err, guest.ErrTooLarge):
		e = wire.TooLarge("%s is larger than the limit of %s.", clip(p, 256), wire.FormatSize(s.maxFile()))
	case errors.Is(err, guest.ErrInvalidPath):
		e = wire.Invalid("path: %s cannot be used", clip(p, 256))
	case errors.As(err, &ge):
		e = wire.Invalid("path: %s", ge.Error())
	default:
		return err
	}
	e.NoRetry, e.Err = true, err
	return e
}
