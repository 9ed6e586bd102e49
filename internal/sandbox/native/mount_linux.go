package native

import (
	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/sandbox/spawn"
)

// buildMounts makes the mounts that need rights outside the sandbox, owned by the ids of userns. The first is the root.
func buildMounts(spec sandbox.Spec, userns int) (*spawn.Mounts, error) {
	m := &spawn.Mounts{}
	if err := m.AddFiles(spec, "/", "/", userns); err != nil {
		return m, err
	}
	fd, err := spawn.DeviceFolder(userns)
	return m, m.Add("/dev", fd, err)
}
