package gvisor

import (
	"encoding/json"
	"fmt"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/sandbox/gvisor/setup"
)

// The part of the OCI runtime configuration that is used here.
type (
	bundle struct {
		Version  string  `json:"ociVersion"`
		Process  process `json:"process"`
		Root     root    `json:"root"`
		Hostname string  `json:"hostname"`
		Mounts   []mount `json:"mounts"`
		Linux    linux   `json:"linux"`
	}
	process struct {
		User         map[string]int      `json:"user"`
		Args         []string            `json:"args"`
		Env          []string            `json:"env"`
		Cwd          string              `json:"cwd"`
		Capabilities map[string][]string `json:"capabilities"`
		Rlimits      []rlimit            `json:"rlimits"`
		NoNewPrivs   bool                `json:"noNewPrivileges"`
	}
	rlimit struct {
		Type string `json:"type"`
		Hard uint64 `json:"hard"`
		Soft uint64 `json:"soft"`
	}
	root struct {
		Path     string `json:"path"`
		ReadOnly bool   `json:"readonly"`
	}
	mount struct {
		Destination string   `json:"destination"`
		Type        string   `json:"type"`
		Source      string   `json:"source"`
		Options     []string `json:"options,omitempty"`
	}
	linux struct {
		Namespaces []map[string]string `json:"namespaces"`
	}
)

// startCapabilities are what the guest has until it is confined. Then it keeps those of the native driver's guest, without
// the last two, and code has none.
var startCapabilities = []string{"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_KILL", "CAP_SETGID", "CAP_SETUID", "CAP_SETPCAP", "CAP_SYS_ADMIN"}

func bundleOf(spec sandbox.Spec) ([]byte, error) {
	b := bundle{
		Version: "1.0.0", Hostname: spec.Hostname, Root: root{Path: setup.RootFS, ReadOnly: true},
		Process: process{
			User: map[string]int{"uid": 0, "gid": 0}, Args: []string{setup.GuestFolder + "/guest", "gvisor"},
			// One processor, because the guest mostly waits.
			Env: []string{"GOMAXPROCS=1"}, Cwd: "/", NoNewPrivs: true, Rlimits: rlimits(spec.Limits),
			Capabilities: map[string][]string{"bounding": startCapabilities, "effective": startCapabilities, "permitted": startCapabilities},
		},
		Mounts: mounts(),
	}
	for _, ns := range []string{"pid", "network", "ipc", "uts", "mount"} {
		b.Linux.Namespaces = append(b.Linux.Namespaces, map[string]string{"type": ns})
	}
	text, err := json.Marshal(b)
	if err != nil {
		return nil, fmt.Errorf("encode bundle: %w", err)
	}
	return text, nil
}

func mounts() []mount {
	bind := func(to, from, mode string) mount {
		return mount{Destination: to, Type: "bind", Source: from, Options: []string{"bind", mode, "nosuid", "nodev"}}
	}
	list := []mount{
		{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "nodev", "noexec"}},
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "mode=755"}},
		{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"nosuid", "noexec"}},
		{Destination: "/dev/shm", Type: "tmpfs", Source: "shm", Options: []string{"nosuid", "nodev", "size=4096"}},
		bind(setup.GuestFolder, setup.Guest, "ro"),
	}
	for _, folder := range sandbox.WorkspaceFolders() {
		list = append(list, bind("/"+folder, setup.Disk+folder, "rw"))
	}
	return list
}

// bindMounts is how many of the mounts the gofer serves.
func bindMounts() (n int) {
	for _, m := range mounts() {
		if m.Type == "bind" {
			n++
		}
	}
	return n
}

// rlimits hold per process inside; the sentry enforces them.
func rlimits(l sandbox.Limits) []rlimit {
	const stack = 8 << 20
	return []rlimit{
		{"RLIMIT_NOFILE", uint64(l.OpenFiles), uint64(l.OpenFiles)},
		{"RLIMIT_FSIZE", uint64(l.FileBytes), uint64(l.FileBytes)},
		{"RLIMIT_NPROC", uint64(l.Processes), uint64(l.Processes)},
		{"RLIMIT_CORE", 0, 0},
		{"RLIMIT_MEMLOCK", 64 << 10, 64 << 10},
		{"RLIMIT_STACK", ^uint64(0), stack},
	}
}
