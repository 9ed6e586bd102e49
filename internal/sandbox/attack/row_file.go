package attack

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/sandbox/guest"
)

func fileThreats() []Threat {
	return []Threat{
		{17, "FilesOfTheHost", "not present", inBox(hostFiles)},
		{18, "SymlinkOutside", "resolved inside the sandbox or refused; a file of the host is never returned", inBox(symlinks)},
		{19, "SymlinkRace", "no file read or removed that the code may not", symlinkRace},
		{20, "SpecialFiles", "only regular files, and nothing blocks", inBox(specialFiles)},
		{21, "HardLinkOutside", "EXDEV or EPERM", inBox(hardLinks)},
		{22, "OddFileNames", "kept, never interpreted", inBox(oddNames)},
		{23, "HostileArchives", "unpacked inside only, under the limits", inBox(archives, Disk(32*MiB), FileBytes(512*MiB))},
	}
}

// ReadFile gets a whole file; a read that blocks is an error.
func ReadFile(ctx context.Context, b *Box, path string, o guest.GetOptions) ([]byte, guest.FileInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, AliveWithin)
	defer cancel()
	r, info, err := b.Get(ctx, path, o)
	if err != nil {
		return nil, info, err
	}
	content, err := io.ReadAll(r)
	return content, info, errors.Join(err, r.Close())
}

func hostFiles(ctx context.Context, b *Box, f *findings) error {
	secret := b.env.SecretFile
	answers, out, err := b.Probe(ctx, "open", secret, "/proc/self/root"+secret, "/etc/shadow", "/root", "/var/run/docker.sock", "/run/docker.sock",
		"/run/airlock", "/root/.aws/credentials", "/root/.ssh", "/home", "/var/lib/kubelet", "/run/secrets", "/.dockerenv", b.env.Dir)
	if err != nil {
		return err
	}
	for _, a := range answers {
		empty := a.Errno == "" && strings.TrimSpace(a.Text) == ""
		f.want(a.Errno == "ENOENT" || a.Errno == "EACCES" || empty, "%s: %+v", a.Name, a)
	}
	f.want(!strings.Contains(out.Stdout, b.env.Secret), "a file of the host was read")
	list, err := b.Sh(ctx, "env; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline /proc/self/mountinfo 2>/dev/null | tr '\\0' '\\n'; hostname")
	if err != nil {
		return err
	}
	f.want(!strings.Contains(list.Stdout, SecretVariable) && !strings.Contains(list.Stdout, b.env.Secret), "the server's environment is inside: %v", list)
	f.want(!strings.Contains(list.Stdout, b.env.Workspaces.Dir), "the mount table names the server's folder")
	name, err := os.Hostname()
	f.want(!strings.Contains(list.Stdout, "\n"+name+"\n"), "the host's name is inside")
	return err
}

// outside are link targets that lead, or seem to lead, out of the sandbox.
func outside(secret string) []string {
	return []string{
		secret, "/proc/self/root" + secret, "/proc/1/root" + secret, "/proc/1/root/etc/shadow", "/proc/self/cwd/../../.." + secret,
		"/etc/shadow", "/proc/1/environ", "/proc/self/maps", "/proc/self/mem", "/proc/self/exe", "/proc/1/fd/3", "/proc/self/fd/3",
		"../../../../../../.." + secret, "/dev/zero", "/workspace/../../.." + secret,
	}
}

func symlinks(ctx context.Context, b *Box, f *findings) error {
	for i, target := range outside(b.env.SecretFile) {
		path := guest.Home + "/link" + strconv.Itoa(i)
		if _, err := b.Exec(ctx, sandbox.Command{Argv: []string{"/bin/ln", "-s", target, path}}); err != nil {
			return err
		}
		for _, options := range []guest.GetOptions{{AsCode: true, Max: MiB}, {AsCode: true, NoSymlinks: true, Max: MiB}, {NoSymlinks: true, Max: MiB}} {
			content, _, err := ReadFile(ctx, b, path, options)
			f.want(err != nil, "link to %s with %+v: got %.80q", target, options, content)
			f.want(!errors.Is(err, sandbox.ErrGone), "link to %s with %+v: %v", target, options, err)
		}
		// Writing through the link must not reach a place that the code cannot write.
		err := b.Put(ctx, path+"/evil", strings.NewReader("x"), guest.PutOptions{AsCode: true, MkdirAll: true})
		f.want(err != nil, "a file was put below the link to %s", target)
	}
	if _, err := b.Exec(ctx, sandbox.Command{Argv: []string{"/bin/ln", "-s", "/etc", guest.Home + "/etc"}}); err != nil {
		return err
	}
	for _, asCode := range []bool{true, false} {
		err := b.Put(ctx, guest.Home+"/etc/airlock-evil", strings.NewReader("x"), guest.PutOptions{AsCode: asCode, MkdirAll: true})
		f.want(err != nil, "a file was put through a link to /etc (as code %t)", asCode)
		err = b.Remove(ctx, guest.Home+"/etc/passwd", guest.RemoveOptions{AsCode: asCode})
		f.want(err != nil, "a file was removed through a link to /etc (as code %t)", asCode)
		_, _, err = ReadFile(ctx, b, guest.Home+"/etc/passwd", guest.GetOptions{AsCode: asCode, NoSymlinks: true})
		f.want(err != nil, "a link in the middle of a path was followed (as code %t)", asCode)
	}
	// Inside its own tree a link is what the code means by it.
	if _, err := b.Sh(ctx, "echo mine > real && ln -s real mine"); err != nil {
		return err
	}
	content, _, err := ReadFile(ctx, b, guest.Home+"/mine", guest.GetOptions{AsCode: true})
	f.want(err == nil && string(content) == "mine\n", "a link to a file of its own: %q, %v", content, err)
	return nil
}

const raceDir = guest.OutputDir + "/race"

func symlinkRace(ctx context.Context, e *Env) error {
	var f findings
	b, done, err := startRace(ctx, e, 3)
	if err != nil {
		return err
	}
	reads, legal := 0, 0
	for racing := true; racing; {
		select {
		case err := <-done:
			f.add(err)
			racing = false
		default:
		}
		for _, path := range []string{raceDir + "/file", raceDir + "/sub/shadow"} {
			for _, o := range []guest.GetOptions{{AsCode: true, NoSymlinks: true}, {NoSymlinks: true}, {AsCode: true}} {
				content, _, err := ReadFile(ctx, b, path, o)
				f.want(!errors.Is(err, sandbox.ErrGone), "the guest died in the race: %v", err)
				reads++
				if err == nil {
					legal++
					f.want(string(content) == "legal", "%s with %+v: read %.60q", path, o, content)
				}
			}
			if err := b.Put(ctx, path, strings.NewReader("legal"), guest.PutOptions{}); err != nil {
				f.want(!errors.Is(err, sandbox.ErrGone), "put in the race: %v", err)
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	f.want(reads >= 50 && legal > 0, "only %d reads raced, %d of them got the file", reads, legal)
	shadow, err := b.Sh(ctx, "stat -c %u /etc/shadow /etc/passwd")
	f.add(err)
	f.want(shadow.Stdout == "0\n0\n", "files of the root were changed: %v", shadow)
	f.add(b.Alive(ctx))
	f.add(destroyInRace(ctx, e, &f))
	return f.err()
}

// startRace has a sandbox swap files for links for some seconds.
func startRace(ctx context.Context, e *Env, seconds int) (*Box, <-chan error, error) {
	b, err := e.Start(ctx)
	if err != nil {
		return nil, nil, err
	}
	if err := b.PutProbe(ctx); err != nil {
		return nil, nil, err
	}
	if err := b.Mkdir(ctx, raceDir, guest.MkdirOptions{Code: true, All: true, Mode: 0o755}); err != nil {
		return nil, nil, err
	}
	done := make(chan error, 1)
	started := make(chan struct{})
	go func() {
		_, err := b.Sandbox.Exec(ctx, sandbox.Command{
			Argv: []string{probePath, "race", raceDir, strconv.Itoa(seconds)}, Stdout: &FirstWrite{Seen: started}, Timeout: CommandTime,
		})
		done <- err
	}()
	return b, done, begun(started, done)
}

// begun waits for the first output of a command and fails if that ended first.
func begun(started <-chan struct{}, done <-chan error) error {
	select {
	case <-started:
		return nil
	case err := <-done:
		return fmt.Errorf("the command ended before it began: %w", errors.Join(err, errNotYet))
	}
}

// FirstWrite closes seen at the first output.
type FirstWrite struct {
	Seen chan struct{}
	over bool
}

func (w *FirstWrite) Write(p []byte) (int, error) {
	if !w.over {
		w.over = true
		close(w.Seen)
	}
	return len(p), nil
}

func destroyInRace(ctx context.Context, e *Env, f *findings) error {
	b, done, err := startRace(ctx, e, 20)
	if err != nil {
		return err
	}
	err = b.Destroy(ctx)
	<-done //nolint:errcheck // the command is lost with its sandbox
	err = errors.Join(err, b.drop(ctx))
	content, readErr := os.ReadFile(e.SecretFile)
	f.want(string(content) == e.Secret, "the host's file is %q, %v", content, readErr)
	f.want(!e.Workspaces.Exists(b.Spec.Workspace.ID), "the workspace is still there")
	return err
}

func specialFiles(ctx context.Context, b *Box, f *findings) error {
	const dir = guest.OutputDir + "/special"
	if err := b.Mkdir(ctx, dir, guest.MkdirOptions{Code: true, All: true, Mode: 0o755}); err != nil {
		return err
	}
	answers, out, err := b.Probe(ctx, "special", dir)
	if err != nil {
		return err
	}
	f.want(len(answers) == 10, "the probe ended early: %v", out)
	for _, a := range answers {
		f.want(a.Errno == "", "making %s: %s", a.Name, a.Errno)
		for _, o := range []guest.GetOptions{{AsCode: true, NoSymlinks: true, Max: MiB}, {NoSymlinks: true, Max: MiB}, {AsCode: true, Max: MiB}} {
			content, _, err := ReadFile(ctx, b, dir+"/"+a.Name, o)
			if a.Name == "regular" || a.Name == "setuid" {
				f.want(err == nil && string(content) == "regular", "%s with %+v: %q, %v", a.Name, o, content, err)
				continue
			}
			f.want(err != nil && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, sandbox.ErrGone), "%s with %+v: %.60q, %v", a.Name, o, content, err)
		}
	}
	return nil
}

func hardLinks(ctx context.Context, b *Box, f *findings) error {
	answers, out, err := b.Probe(ctx, "link", guest.Home, "/etc/passwd", "/etc/shadow", "/proc/1/environ", "/dev/null", "/bin/su")
	if err != nil {
		return err
	}
	f.want(len(answers) == 5, "the probe ended early: %v", out)
	for _, a := range answers {
		f.want(slices.Contains([]string{"EXDEV", "EPERM", "EACCES", "EROFS"}, a.Errno), "a hard link to %s: %q", a.Name, a.Errno)
	}
	return nil
}

func oddNames(ctx context.Context, b *Box, f *findings) error {
	const dir = guest.Home + "/names"
	if err := b.Mkdir(ctx, dir, guest.MkdirOptions{AsCode: true}); err != nil {
		return err
	}
	answers, out, err := b.Probe(ctx, "names", dir)
	if err != nil {
		return err
	}
	listed, err := b.List(ctx, dir, 1, 1000)
	if err != nil {
		return err
	}
	f.want(len(listed) == len(answers), "%d names were listed, %d made: %v", len(listed), len(answers), out)
	for _, a := range answers {
		name, err := strconv.Unquote(a.Name)
		f.add(err)
		f.want(a.Errno == "", "making %s: %s", a.Name, a.Errno)
		path := dir + "/" + name
		f.want(slices.ContainsFunc(listed, func(i guest.FileInfo) bool { return i.Path == path }), "%s is not listed as it is", a.Name)
		content, _, err := ReadFile(ctx, b, path, guest.GetOptions{AsCode: true, NoSymlinks: true})
		f.want(err == nil && string(content) == name, "%s: %q, %v", a.Name, content, err)
	}
	return refusePaths(ctx, b, f)
}

// refusePaths puts files to places that no caller may reach.
func refusePaths(ctx context.Context, b *Box, f *findings) error {
	const evil = "airlock-evil-name"
	for _, path := range []string{
		"", "/", "../../../../etc/" + evil, "/workspace/../../../../etc/" + evil, "/etc/" + evil, "/proc/" + evil, "/dev/" + evil,
		"/workspace/a\x00b", "/workspace/" + strings.Repeat("n", 256), "/workspace/" + strings.Repeat("d/", 5000) + "x", "/usr/bin/" + evil,
	} {
		for _, asCode := range []bool{true, false} {
			err := b.Put(ctx, path, strings.NewReader("x"), guest.PutOptions{AsCode: asCode, MkdirAll: true})
			f.want(err != nil && !errors.Is(err, sandbox.ErrGone), "put %.60q (as code %t): %v", path, asCode, err)
		}
	}
	_, err := os.Stat("/etc/" + evil)
	f.want(errors.Is(err, fs.ErrNotExist), "a file appeared on the host: %v", err)
	return nil
}

func archives(ctx context.Context, b *Box, f *findings) error {
	hostile, err := hostileTar()
	if err != nil {
		return err
	}
	if err := b.Put(ctx, guest.Home+"/evil.tar", bytes.NewReader(hostile), guest.PutOptions{AsCode: true}); err != nil {
		return err
	}
	out, err := b.Sh(ctx, "mkdir x && cd x && tar -P -xf ../evil.tar; echo; ls -l /etc/airlock-evil /airlock-evil /tmp/airlock-legal")
	if err != nil {
		return err
	}
	f.want(!strings.Contains(out.Stdout, "/etc/airlock-evil") && strings.Contains(out.Stdout, "/tmp/airlock-legal"), "unpacked to: %v", out)
	for _, path := range []string{"/etc/airlock-evil", "/airlock-evil", "/tmp/airlock-legal"} {
		_, err := os.Lstat(path)
		f.want(errors.Is(err, fs.ErrNotExist), "%s appeared on the host", path)
	}
	bomb, err := zipBomb(256 * MiB)
	if err != nil {
		return err
	}
	if err := b.Put(ctx, guest.Home+"/bomb.gz", bytes.NewReader(bomb), guest.PutOptions{AsCode: true}); err != nil {
		return err
	}
	start := time.Now()
	out, err = b.Sh(ctx, "gzip -dc bomb.gz > big; echo code $?; rm -f big")
	f.want(strings.Contains(out.Stderr, "No space left on device"), "256 MiB on a disk of 32 MiB after %s: %v", time.Since(start), out)
	return err
}

// hostileTar has absolute paths, steps upwards and a link to walk through.
func hostileTar() ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	entries := []tar.Header{
		{Name: "/etc/airlock-evil", Typeflag: tar.TypeReg},
		{Name: "../../../../etc/airlock-evil", Typeflag: tar.TypeReg},
		{Name: "/airlock-evil", Typeflag: tar.TypeReg},
		{Name: "/tmp/airlock-legal", Typeflag: tar.TypeReg},
		{Name: "way", Typeflag: tar.TypeSymlink, Linkname: "/etc"},
		{Name: "way/airlock-evil", Typeflag: tar.TypeReg},
		{Name: "hard", Typeflag: tar.TypeLink, Linkname: "/etc/shadow"},
		{Name: "node", Typeflag: tar.TypeBlock, Devmajor: 7},
		{Name: "suid", Typeflag: tar.TypeReg},
	}
	for _, h := range entries {
		h.Mode = 0o6755
		if err := w.WriteHeader(&h); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), w.Close()
}

func zipBomb(size int64) ([]byte, error) {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := io.CopyN(w, Zeros{}, size)
	return b.Bytes(), errors.Join(err, w.Close())
}

// Zeros reads as zeros without end.
type Zeros struct{}

func (Zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
