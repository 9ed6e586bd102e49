package rootfs

import (
	"bytes"
	"strconv"
	"strings"
)

// Phase is a stretch of a build or import that a person waits for.
type Phase string

// The phases in the order in which they come; some are left out where there is nothing to do.
const (
	PhaseUpdate    Phase = "package lists"
	PhaseDownload  Phase = "base packages"
	PhaseEssential Phase = "base system"
	PhaseInstall   Phase = "packages"
	PhaseClean     Phase = "clean up"
	PhaseCompile   Phase = "compile"
	PhaseNode      Phase = "node libraries"
	PhaseWheels    Phase = "wheels"
	PhaseUnpack    Phase = "unpack"
	PhaseFinish    Phase = "finish"
	PhaseCheck     Phase = "check"
	PhasePublish   Phase = "publish"
)

// Progress is one report. Within a phase Done only grows.
type Progress struct {
	Phase Phase
	// Done and Total count steps (two a package: unpack, set up) or bytes; Total 0 means unknown.
	Done, Total int64
	// Item is what is being worked on; often empty.
	Item string
}

// progressWriter reads mmdebstrap --verbose.
type progressWriter struct {
	report func(Progress)
	now    Progress
	rest   []byte
}

// Write never fails: progress must not stop a build.
func (w *progressWriter) Write(p []byte) (int, error) {
	w.rest = append(w.rest, p...)
	for {
		i := bytes.IndexAny(w.rest, "\r\n")
		if i < 0 {
			break
		}
		w.line(string(w.rest[:i]))
		w.rest = w.rest[i+1:]
	}
	if len(w.rest) > 64<<10 {
		w.rest = nil
	}
	return len(p), nil
}

// mmdebstrapPhases maps the starts of its own lines; everything between two of them is apt and dpkg.
var mmdebstrapPhases = []struct {
	prefix string
	phase  Phase
}{
	{"I: running apt-get update", PhaseUpdate},
	{"I: downloading packages with apt", PhaseDownload},
	{"I: installing essential packages", PhaseEssential},
	{"I: installing remaining packages", PhaseInstall},
	{"I: cleaning package lists", PhaseClean},
}

func (w *progressWriter) line(s string) {
	for _, p := range mmdebstrapPhases {
		if strings.HasPrefix(s, p.prefix) {
			// The base packages are counted when they are downloaded and set up in the phase after it.
			total := int64(0)
			if p.phase == PhaseEssential {
				total = w.now.Total
			}
			w.now = Progress{Phase: p.phase, Total: total}
			w.report(w.now)
			return
		}
	}
	words := strings.Fields(s)
	switch {
	case len(words) < 3:
		return
	case words[1] == "upgraded," && words[3] == "newly":
		if n, err := strconv.ParseInt(words[2], 10, 64); err == nil {
			w.now.Total = 2 * n
			w.now.Done = 0
		}
	case words[0] == "Unpacking":
		w.step(words[1])
	case words[0] == "Setting" && words[1] == "up":
		w.step(words[2])
	default:
		return
	}
	w.report(w.now)
}

func (w *progressWriter) step(pkg string) {
	w.now.Item, _, _ = strings.Cut(pkg, ":")
	if w.now.Total == 0 || w.now.Done < w.now.Total {
		w.now.Done++
	}
}
