package airlock

import (
	"github.com/anthropics/anthropic-sdk-go/v2"
)

// Upload is the block of a user message that puts an uploaded file into the sandbox.
func Upload(fileID string) anthropic.ContentBlockParamUnion {
	return anthropic.NewContainerUploadBlock(fileID)
}

// ReuseContainer makes a request go on in the container of an earlier one, with its files and variables. Skills that p
// names stay. It does nothing for "".
func ReuseContainer(p *anthropic.MessageNewParams, id string) {
	if id == "" {
		return
	}
	if c := p.Container.OfContainers; c != nil && len(c.Skills) > 0 {
		withID := *c // p may be a copy that shares what the pointer leads to
		withID.ID = anthropic.String(id)
		p.Container = anthropic.MessageCreateParamsContainerUnion{OfContainers: &withID}
		return
	}
	p.Container = anthropic.MessageCreateParamsContainerUnion{OfString: anthropic.String(id)}
}

// ForwardContainer makes the next step go on in the container of the newest step that has one. Steps come in the order in
// which they were made; without a container p stays as it is.
func ForwardContainer(p *anthropic.MessageNewParams, steps ...*anthropic.Message) {
	ReuseContainer(p, CollectOutputs(steps...).ContainerID)
}
