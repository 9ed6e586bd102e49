package container

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/airlock-sandbox/airlock/internal/file"
	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/sandbox/guest"
	"github.com/airlock-sandbox/airlock/internal/tenant"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// outputRoot holds one folder per call.
const outputRoot = "/files/output"

// Limits of one export.
const (
	maxExportFiles = 100
	maxExportList  = 10_000 // entries looked at
	maxExportNotes = 20     // notes about single entries
)

// OutputDir makes the fresh, empty folder into which the code of one call puts what shall become output files. It belongs
// to the code's user. The call id must be unguessable and is used as a folder name.
func (l *Lease) OutputDir(ctx context.Context, callID string) (string, error) {
	dir, err := outputPath(callID)
	if err != nil {
		return "", err
	}
	sb, err := l.Sandbox(ctx)
	if err != nil {
		return "", err
	}
	// A call that is run again after a crash finds what its first attempt left.
	if err := sb.Remove(ctx, dir, guest.RemoveOptions{All: true}); err != nil {
		return "", fmt.Errorf("empty %s: %w", dir, err)
	}
	if err := sb.Mkdir(ctx, dir, guest.MkdirOptions{Mode: 0o755, Code: true}); err != nil {
		return "", fmt.Errorf("make %s: %w", dir, err)
	}
	return dir, nil
}

func outputPath(callID string) (string, error) {
	if !wire.PlainID(callID, 128) {
		return "", fmt.Errorf("call id %q cannot be a folder name", wire.Clip(callID, 64))
	}
	return path.Join(outputRoot, callID), nil
}

// makes is what the turn's output files and executions carry: they belong to whoever makes the request, in the scope of the
// container, which another user of the app may have made.
func (l *Lease) makes() tenant.Owner {
	return tenant.Owner{AppID: l.c.Owner.AppID, UserID: l.caller.UserID, Scope: l.c.Owner.Scope}
}

// Export turns the regular files at the top level of a call's output folder into output files of the caller in the
// container's scope, sorted by name. The notes name what was left out and why, each a line for the model. Files that were stored stay
// stored when a later one fails.
func (l *Lease) Export(ctx context.Context, callID string) (files []*file.File, notes []string, err error) {
	dir, err := outputPath(callID)
	if err != nil {
		return nil, nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.released || l.live == nil {
		return nil, nil, errReleased
	}
	sb, err := l.sandbox(ctx)
	if err != nil {
		return nil, nil, err
	}
	entries, err := sb.List(ctx, dir, 1, maxExportList)
	var plan *exportPlan
	switch {
	case err == nil, errors.Is(err, guest.ErrTooLarge): // then the first entries are there
		plan = planExport(entries, l.s.maxFile())
		plan.cut = err != nil
	case errors.Is(err, guest.ErrNotExist), errors.Is(err, guest.ErrPermission), errors.Is(err, guest.ErrInvalidPath):
		// The code removed or replaced its own folder; there is nothing to take and no reason to fail the call.
		return nil, []string{"$OUTPUT_DIR is not a readable folder any more; no output files were taken"}, nil
	default:
		return nil, nil, fmt.Errorf("list %s: %w", dir, err)
	}
	for i, name := range plan.take {
		f, err := l.export(ctx, sb, callID, path.Join(dir, name))
		switch {
		case err == nil:
			files = append(files, f)
			if l.last != nil {
				l.last.BytesOut += f.Size
			}
		case errors.Is(err, file.ErrTooLarge), errors.Is(err, guest.ErrTooLarge):
			plan.note(name, "larger than "+wire.FormatSize(l.s.maxFile()))
		case errors.Is(err, file.ErrQuota):
			for _, name := range plan.take[i:] {
				plan.note(name, "the storage quota of the app is used up")
			}
			return files, plan.notes(), nil
		case errors.Is(err, guest.ErrNotExist), errors.Is(err, guest.ErrInvalidPath), errors.Is(err, guest.ErrPermission):
			// It changed between the listing and now, which only code that still runs can do.
			plan.note(name, "not a readable regular file")
		case errors.Is(err, sandbox.ErrGone), ctx.Err() != nil:
			return files, plan.notes(), err
		default:
			// The store failed, not the code: what it printed is worth having, and the model is told what is missing.
			l.s.log().ErrorContext(ctx, "store output files", "container_id", l.c.ID, "call_id", callID, "error", err)
			for _, name := range plan.take[i:] {
				plan.note(name, "it could not be stored on the server; it is still in the container")
			}
			return files, plan.notes(), nil
		}
	}
	return files, plan.notes(), nil
}

func (l *Lease) export(ctx context.Context, sb *sandbox.Sandbox, callID, name string) (_ *file.File, err error) {
	// Threat: a link in the output folder must not export what the code may not read. No link is followed on any level,
	// and the file is opened with the rights of the code.
	body, info, err := sb.Get(ctx, name, guest.GetOptions{AsCode: true, NoSymlinks: true, Max: l.s.maxFile()})
	if err != nil {
		return nil, fmt.Errorf("open output %s: %w", path.Base(name), err)
	}
	defer func() { err = errors.Join(err, body.Close()) }()
	f, err := l.s.Files.CreateOutput(ctx, l.makes(), file.OutputParams{
		Filename: path.Base(name), ContainerID: string(l.c.ID), CallID: callID,
		Body: &sizedReader{r: body, left: info.Size},
	})
	if err != nil {
		return nil, fmt.Errorf("store output %s: %w", path.Base(name), err)
	}
	return f, nil
}

// exportPlan is which entries of an output folder are taken, and what is said about the others.
type exportPlan struct {
	take    []string
	left    []string
	omitted int
	cut     bool // there were more entries than are looked at
}

func planExport(entries []sandbox.FileInfo, maxBytes int64) *exportPlan {
	p := &exportPlan{}
	entries = slices.Clone(entries)
	slices.SortFunc(entries, func(a, b sandbox.FileInfo) int { return strings.Compare(a.Path, b.Path) })
	for _, e := range entries {
		name := path.Base(e.Path)
		switch {
		case e.Type == guest.TypeDir:
			p.note(name, "a folder; only files at the top level of $OUTPUT_DIR are taken")
		case e.Type == guest.TypeSymlink:
			p.note(name, "a symbolic link")
		case e.Type != guest.TypeFile:
			p.note(name, "not a regular file")
		case e.Size > maxBytes:
			p.note(name, "larger than "+wire.FormatSize(maxBytes))
		case len(p.take) >= maxExportFiles:
			p.note(name, "more than "+strconv.Itoa(maxExportFiles)+" files in one call")
		default:
			p.take = append(p.take, name)
		}
	}
	return p
}

func (p *exportPlan) note(name, why string) {
	if len(p.left) >= maxExportNotes {
		p.omitted++
		return
	}
	p.left = append(p.left, "not exported: "+strconv.Quote(name)+": "+why)
}

func (p *exportPlan) notes() []string {
	all := slices.Clone(p.left)
	if p.omitted > 0 {
		all = append(all, fmt.Sprintf("not exported: %d more", p.omitted))
	}
	if p.cut {
		all = append(all, fmt.Sprintf("$OUTPUT_DIR has more than %d entries; the others were not looked at", maxExportList))
	}
	return all
}
