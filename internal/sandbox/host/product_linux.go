package host

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/airlock-sandbox/airlock/internal/sandbox/guest/bin"
	"github.com/airlock-sandbox/airlock/internal/sandbox/gvisor"
	"github.com/airlock-sandbox/airlock/internal/sandbox/rootfs"
)

// staleAfter is the age at which a root file system is likely to lack
// security updates.
const staleAfter = 30 * 24 * time.Hour

func probeE2fsprogs(context.Context, Options) Check {
	var missing []string
	for _, tool := range []string{"mke2fs", "e2fsck"} {
		if !found(tool) {
			missing = append(missing, tool)
		}
	}
	if len(missing) > 0 {
		return fail("missing: "+strings.Join(missing, ", "), "workspaces cannot be made or repaired",
			"apt-get install e2fsprogs")
	}
	return ok("mke2fs and e2fsck")
}

func probeMmdebstrap(context.Context, Options) Check {
	if !found("mmdebstrap") {
		return warn("missing", "root file systems can be imported, but not built here", "apt-get install mmdebstrap")
	}
	return ok("root file systems can be built here")
}

// found also looks where an unprivileged PATH does not lead.
func found(tool string) bool {
	for _, name := range []string{tool, "/usr/sbin/" + tool, "/sbin/" + tool} {
		if _, err := exec.LookPath(name); err == nil {
			return true
		}
	}
	return false
}

func probeGuest(context.Context, Options) Check {
	f, err := bin.Open()
	if errors.Is(err, bin.ErrNotBuilt) {
		return fail(err.Error(), "this binary lacks the program that runs inside a sandbox", "make build")
	}
	if err != nil {
		return fail(err.Error(), "the program that runs inside a sandbox cannot be put into memory", "make build")
	}
	return ok("built in").closing(f)
}

func probeGVisor(ctx context.Context, o Options) Check {
	const shared = "sandboxes share this machine's kernel: serve only apps and users that may trust each other"
	path, err := gvisor.Find(o.Runsc)
	if errors.Is(err, gvisor.ErrNoRunsc) {
		return warn("no runsc", shared, "make runsc")
	}
	if err != nil {
		return warn(err.Error(), shared, "set sandbox.runsc to the program that make runsc builds")
	}
	version, err := gvisor.VersionOf(ctx, path)
	if err != nil {
		return warn(err.Error(), shared, "make runsc")
	}
	if o.TryGVisor != nil {
		if err := o.TryGVisor(ctx); err != nil {
			return warn("runsc "+version+" at "+path+": "+err.Error(), "the self-test fails, so auto means native; "+shared, "make runsc; if it still fails, run airlock doctor --driver gvisor as root and read the self-test")
		}
	}
	if version != gvisor.Version {
		return warn("runsc "+version+" at "+path, "it works here; Airlock's attacks were run against "+gvisor.Version, "make runsc")
	}
	return ok("runsc " + version + " at " + path)
}

func probeRootFS(_ context.Context, o Options) Check {
	const remedy = "airlock rootfs build --profile office"
	store := &rootfs.Store{Dir: o.RootFS}
	images, err := store.List()
	if err != nil {
		return fail(err.Error(), "code cannot run without a root file system", remedy)
	}
	if len(images) == 0 {
		return fail("none in "+o.RootFS, "code cannot run without a root file system", remedy)
	}
	now := time.Now
	if o.Now != nil {
		now = o.Now
	}
	var names, stale []string
	for _, image := range images {
		age := now().Sub(image.BuiltAt)
		names = append(names, fmt.Sprintf("%s (%d days old)", image.Name, int(age.Hours()/24)))
		if age > staleAfter {
			stale = append(stale, image.Profile)
		}
	}
	if len(stale) > 0 {
		return warn(strings.Join(names, ", "), "security updates of the last 30 days are missing",
			"airlock rootfs build --refresh --profile "+stale[0])
	}
	return ok(strings.Join(names, ", "))
}
