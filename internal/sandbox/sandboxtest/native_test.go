package sandboxtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/sandbox/attack"
	"github.com/airlock-sandbox/airlock/internal/sandbox/drivers"
	"github.com/airlock-sandbox/airlock/internal/sandbox/rootfs"
	"github.com/airlock-sandbox/airlock/internal/sandbox/sandboxtest/leftover"
)

// drivers under test; a new driver is one more line here.
var driverNames = []string{"native", "gvisor"}

// runsc is what make runsc builds.
const runsc = "../../../bin/runsc"

// partVariable makes this program play a part of an attempt instead of testing; its value is "driver part".
const partVariable = "AIRLOCK_SANDBOXTEST_PART"

func selfPart(driver string) func(context.Context, string) *exec.Cmd {
	return func(ctx context.Context, part string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, "/proc/self/exe")
		cmd.Env = append(os.Environ(), partVariable+"="+driver+" "+part)
		return cmd
	}
}

func TestMain(m *testing.M) {
	if driver, part, found := strings.Cut(os.Getenv(partVariable), " "); found {
		if err := attack.PlayPart(context.Background(), factory(driver), part); err != nil {
			fmt.Fprintln(os.Stderr, "part:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	_ = leftover.Remove() // of killed runs; see there
	os.Exit(testMain(m))
}

func testMain(m *testing.M) int {
	root, err := testRootFS()
	if err == nil {
		// The process that row 51 starts must not search again.
		err = os.Setenv("AIRLOCK_TEST_ROOTFS", root)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

func driverOf(name string) func(sandbox.Host) (sandbox.Driver, error) {
	return func(host sandbox.Host) (sandbox.Driver, error) {
		return drivers.New(context.Background(), name, drivers.Options{Host: host, Runsc: runsc})
	}
}

// needDriver skips a driver that was not built, unless it is required.
func needDriver(t *testing.T, name string) {
	t.Helper()
	if _, err := os.Stat(runsc); name != "gvisor" || err == nil {
		return
	}
	if strings.Contains(os.Getenv("AIRLOCK_REQUIRE"), "gvisor") {
		t.Fatal("gvisor is required: run make runsc")
	}
	t.Skip("gvisor is not built: run make runsc")
}

// testRootFS is AIRLOCK_TEST_ROOTFS, or the smallest image of the store. A
// missing one is a failure: an escape suite that skips proves nothing.
func testRootFS() (string, error) {
	if dir := os.Getenv("AIRLOCK_TEST_ROOTFS"); dir != "" {
		return dir, nil
	}
	data := os.Getenv("XDG_DATA_HOME")
	if data == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", err
		}
		data = filepath.Join(home, ".local", "share")
	}
	store := &rootfs.Store{Dir: filepath.Join(data, "airlock", "rootfs")}
	images, err := store.List()
	if err != nil {
		return "", err
	}
	var smallest *rootfs.Image
	for _, image := range images {
		// An image of unknown size is no candidate unless it is the only one.
		if smallest == nil || image.Size > 0 && (smallest.Size == 0 || image.Size < smallest.Size) {
			smallest = image
		}
	}
	if smallest == nil {
		return "", fmt.Errorf("no root file system in %s, run: airlock rootfs build --profile min", store.Dir)
	}
	return smallest.Path, nil
}

func factory(name string) Factory {
	return Factory{
		Name: name, New: driverOf(name), RootFS: os.Getenv("AIRLOCK_TEST_ROOTFS"), Part: selfPart(name),
	}
}

// eachDriver runs a check on every driver, with an Env of its own.
func eachDriver(t *testing.T, check func(*testing.T, *Env)) {
	t.Helper()
	for _, name := range driverNames {
		t.Run(name, func(t *testing.T) {
			needDriver(t, name)
			check(t, open(t, factory(name)))
		})
	}
}

func TestConformance(t *testing.T) {
	for _, name := range driverNames {
		t.Run(name, func(t *testing.T) {
			needDriver(t, name)
			Run(t, factory(name))
		})
	}
}

// mayGetThrough are the rows that a driver need not hold, as the threat model says. No row joins them by itself.
var mayGetThrough = map[string][]int{
	"native": {38, 57}, // the host's own kernel and cores
	"gvisor": {2},      // the memory limit ends the whole sandbox
}

// threatLimit ends an attempt that hangs the test itself.
const threatLimit = 3 * time.Minute

func TestThreats(t *testing.T) {
	for _, name := range driverNames {
		t.Run(name, func(t *testing.T) {
			needDriver(t, name)
			e := open(t, factory(name))
			for _, threat := range attack.Threats() {
				t.Run(threat.Title(), func(t *testing.T) {
					ctx, cancel := context.WithTimeout(t.Context(), threatLimit)
					defer cancel()
					err := attack.Attack(ctx, e, threat)
					if errors.Is(err, attack.ErrDocumented) && slices.Contains(mayGetThrough[name], threat.Row) {
						t.Log(err)
						return
					}
					if err != nil {
						t.Errorf("row %d, required: %s\n%v", threat.Row, threat.Required, err)
					}
				})
			}
		})
	}
}
