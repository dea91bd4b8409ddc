// Checks recorded histories of a storage with porcupine: whether one order of all steps explains every answer.
// The format of a history, and why calls without an answer may end, stand in `histories/history.rs` of package
// `faults`. Ends with 0 if every partition is linearizable, with 1 if one is not, and with 2 if that is undecided.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"math"
	"os"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// A record, or a vacancy: that has no incarnation, and no epoch if the slot was never led.
type slot struct {
	Epoch       uint64 `json:"epoch"`
	Incarnation string `json:"incarnation"`
	Write       uint64 `json:"write"`
	TTL         uint64 `json:"ttl"`
	Holder      string `json:"holder"`
}

func (s slot) sameWrite(other slot) bool {
	return s.Epoch == other.Epoch && s.Incarnation == other.Incarnation && s.Write == other.Write
}

func (s slot) isOf(leader slot) bool {
	return s.Incarnation != "" && s.Epoch == leader.Epoch && s.Incarnation == leader.Incarnation
}

type write struct {
	ID     string  `json:"id"`
	OnlyIf string  `json:"only_if"`
	Body   *string `json:"body"`
}

type document struct {
	Version uint64 `json:"version"`
	Body    string `json:"body"`
}

// A line of a history.
type operation struct {
	Partition string    `json:"at"`
	Client    int       `json:"client"`
	From      int64     `json:"from"`
	To        *int64    `json:"to"`
	Call      string    `json:"call"`
	Guard     slot      `json:"guard"`
	Entry     slot      `json:"entry"`
	After     uint64    `json:"after"`
	Writes    []write   `json:"writes"`
	Answer    string    `json:"answer"`
	Slot      *slot     `json:"slot"`
	Last      *uint64   `json:"last"`
	ID        string    `json:"id"`
	Document  *document `json:"document"`
	line      int
}

const (
	applied    = "applied"
	refused    = "refused"
	notApplied = "not applied"
	unknown    = "unknown"
	shown      = "shown"
)

// A partition. Documents are lines of id, version and body, in order, so that states can be compared.
type state struct {
	slot  slot
	last  uint64
	lines string
}

func (s state) documents() map[string]document {
	documents := map[string]document{}
	for _, line := range strings.Split(s.lines, "\n") {
		parts := strings.SplitN(line, "\t", 3)
		if len(parts) == 3 {
			version, _ := strconv.ParseUint(parts[1], 10, 64)
			documents[parts[0]] = document{version, parts[2]}
		}
	}
	return documents
}

func (s state) with(documents map[string]document) state {
	lines := make([]string, 0, len(documents))
	for id, document := range documents {
		lines = append(lines, fmt.Sprintf("%s\t%d\t%s", id, document.Version, document.Body))
	}
	sort.Strings(lines)
	s.lines = strings.Join(lines, "\n")
	return s
}

// What a step does to a state, and whether its condition holds.
func step(s state, o *operation) (state, bool) {
	switch o.Call {
	case "claim", "renew":
		if !s.slot.sameWrite(o.Guard) {
			return s, false
		}
		s.slot = o.Entry
	case "release":
		if !s.slot.isOf(o.Guard) {
			return s, false
		}
		s.slot = slot{Epoch: o.Guard.Epoch}
	case "adopt":
		if s.slot.Epoch >= o.Entry.Epoch {
			return s, false
		}
		s.slot = o.Entry
	case "batch":
		if !s.slot.isOf(o.Guard) || s.last != o.After {
			return s, false
		}
		documents := s.documents()
		for _, write := range o.Writes {
			stands, there := documents[write.ID]
			holds := write.OnlyIf == "always" || write.OnlyIf == "absent" && !there ||
				there && write.OnlyIf == strconv.FormatUint(stands.Version, 10)
			if !holds {
				return s, false
			}
		}
		s.last++
		for _, write := range o.Writes {
			delete(documents, write.ID)
			if write.Body != nil {
				documents[write.ID] = document{s.last, *write.Body}
			}
		}
		s = s.with(documents)
	}
	return s, true
}

// Whether a state shows what the operation was shown.
func shows(s state, o *operation) bool {
	if o.Slot != nil && s.slot != *o.Slot || o.Last != nil && s.last != *o.Last {
		return false
	}
	if o.Call != "document" {
		return true
	}
	stands, there := s.documents()[o.ID]
	return there == (o.Document != nil) && (!there || stands == *o.Document)
}

var model = porcupine.Model{
	Init: func() interface{} { return state{} },
	Step: func(before, input, _ interface{}) (bool, interface{}) {
		s, o := before.(state), input.(*operation)
		if o.Answer == shown {
			return shows(s, o), s
		}
		after, holds := step(s, o)
		switch o.Answer {
		case applied:
			return holds, after
		case refused:
			return !holds && shows(s, o), s
		default:
			// If it was never applied, it stands where its condition no longer holds: at the end at the latest.
			return true, after
		}
	},
	DescribeOperation: func(input, _ interface{}) string { return input.(*operation).String() },
	DescribeState:     func(s interface{}) string { return fmt.Sprintf("%+v", s) },
}

func (o *operation) String() string {
	text, _ := json.Marshal(o)
	return fmt.Sprintf("line %d: %s", o.line, text)
}

// Whether an answer proves that what guards an open call is gone. The guard was seen before that call, and
// `seen` was called after it, and no state returns.
func (seen *operation) endsGuardOf(open *operation) bool {
	var after *slot
	last := seen.Last
	switch {
	case seen.Answer == applied && (seen.Call == "claim" || seen.Call == "renew"):
		after = &seen.Entry
	case seen.Answer == applied && seen.Call == "release":
		after = &slot{Epoch: seen.Guard.Epoch}
	case seen.Answer == applied && seen.Call == "batch":
		count := seen.After + 1
		last = &count
		if seen.Guard.Epoch != open.Guard.Epoch || seen.Guard.Incarnation != open.Guard.Incarnation {
			return true
		}
	default:
		after = seen.Slot
	}
	switch open.Call {
	case "claim", "renew":
		return after != nil && !after.sameWrite(open.Guard)
	case "release":
		return after != nil && !after.isOf(open.Guard)
	default:
		return after != nil && !after.isOf(open.Guard) || last != nil && *last > open.After
	}
}

// The holder of a slot that was adopted after a fail-over, as PostgreSQL and MariaDB store it.
const adopted = "none: waiting after a fail-over of the database"

// The steps that no client takes: once after a fail-over, the first call that meets the promoted server adopts a slot.
// That was so before the first answer that shows the slot as it was adopted.
func adoptions(operations, failOvers []*operation) ([]*operation, error) {
	first := map[slot]*operation{}
	for _, o := range operations {
		if o.Slot == nil || o.Slot.Holder != adopted {
			continue
		}
		if seen := first[*o.Slot]; seen == nil || *o.To < *seen.To {
			first[*o.Slot] = o
		}
	}
	steps, after := []*operation{}, map[*operation]bool{}
	for adopted, seen := range first {
		var before *operation
		for _, failOver := range failOvers {
			if failOver.From < *seen.To {
				before = failOver
			}
		}
		if before == nil || after[before] {
			return nil, fmt.Errorf("adopted without a fail-over of its own: %v", seen)
		}
		after[before] = true
		steps = append(steps, &operation{Client: before.Client, From: before.From, To: seen.To, Call: "adopt",
			Answer: applied, Entry: adopted, line: seen.line})
	}
	return steps, nil
}

// When each call without an answer ends: at the first answer that proves that its guard is gone.
func endOpenCalls(operations []*operation) (ended int) {
	closed := []*operation{}
	for _, o := range operations {
		if o.Answer != unknown {
			closed = append(closed, o)
		}
	}
	for _, open := range operations {
		if open.Answer != unknown {
			continue
		}
		end := int64(math.MaxInt64)
		first := sort.Search(len(closed), func(i int) bool { return closed[i].From >= open.From })
		for _, seen := range closed[first:] {
			if seen.From >= end {
				break
			}
			if *seen.To < end && seen.endsGuardOf(open) {
				end = *seen.To
			}
		}
		if end != math.MaxInt64 {
			ended++
		}
		open.To = &end
	}
	return ended
}

// What an operation that changes nothing shows, if that state can stand only once. A document that is absent
// may be so again.
func (o *operation) onlyShows() (string, bool) {
	switch {
	case o.Answer == refused && o.Slot != nil:
		return fmt.Sprintf("slot %+v", *o.Slot), true
	case o.Answer != shown:
		return "", false
	case o.Call == "document" && o.Document == nil:
		return "", false
	case o.Call == "document":
		return fmt.Sprintf("document %s %+v", o.ID, *o.Document), true
	case o.Last != nil:
		return fmt.Sprintf("slot %+v %d", *o.Slot, *o.Last), true
	default:
		return fmt.Sprintf("slot %+v", *o.Slot), true
	}
}

// Keeps two of those that show the same state: the one that was answered first, and the one that was called last.
// That state stood without a gap from before that answer until after that call, so the others find a place.
func reduce(operations []*operation) []*operation {
	type pair struct{ first, last *operation }
	kept := map[string]*pair{}
	reduced := []*operation{}
	for _, o := range operations {
		key, reduces := o.onlyShows()
		if !reduces {
			reduced = append(reduced, o)
			continue
		}
		both := kept[key]
		if both == nil {
			kept[key] = &pair{o, o}
			continue
		}
		if *o.To < *both.first.To {
			both.first = o
		}
		if o.From > both.last.From {
			both.last = o
		}
	}
	for _, both := range kept {
		reduced = append(reduced, both.first)
		if both.last != both.first {
			reduced = append(reduced, both.last)
		}
	}
	return reduced
}

func read(path string) []*operation {
	file, err := os.Open(path)
	if err != nil {
		log.Fatal(err)
	}
	defer file.Close()
	operations := []*operation{}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for number := 1; lines.Scan(); number++ {
		o := &operation{line: number}
		if err := json.Unmarshal(lines.Bytes(), o); err != nil {
			log.Fatalf("line %d: %v", number, err)
		}
		if (o.To == nil) != (o.Answer == unknown) {
			log.Fatalf("line %d: only a call of unknown outcome has no end", number)
		}
		operations = append(operations, o)
	}
	if err := lines.Err(); err != nil {
		log.Fatal(err)
	}
	return operations
}

// Prints the longest order that was found, from its end, and what did not fit behind it.
func explain(info porcupine.LinearizationInfo, operations []*operation) {
	longest := []porcupine.Operation{}
	for _, one := range info.PartialLinearizationsOperations()[0] {
		if len(one) > len(longest) {
			longest = one
		}
	}
	placed := map[*operation]bool{}
	for _, o := range longest {
		placed[o.Input.(*operation)] = true
	}
	fmt.Printf("  no order has more than %d of %d operations; it ends with\n", len(longest), len(operations))
	for _, o := range longest[max(0, len(longest)-5):] {
		fmt.Println("   ", o.Input)
	}
	left := []*operation{}
	for _, o := range operations {
		if !placed[o] {
			left = append(left, o)
		}
	}
	sort.Slice(left, func(i, j int) bool { return *left[i].To < *left[j].To })
	fmt.Println("  and these did not fit")
	for _, o := range left[:min(5, len(left))] {
		fmt.Println("   ", o)
	}
}

func main() {
	log.SetFlags(0)
	timeout := flag.Duration("timeout", 2*time.Minute, "how long one partition may take")
	flag.Parse()
	partitions := map[string][]*operation{}
	names, failOvers := []string{}, []*operation{}
	for _, o := range read(flag.Arg(0)) {
		if o.Call == "fail-over" {
			failOvers = append(failOvers, o)
			continue
		}
		if partitions[o.Partition] == nil {
			names = append(names, o.Partition)
		}
		partitions[o.Partition] = append(partitions[o.Partition], o)
	}
	began, status := time.Now(), 0
	all, open, ended, checked, adopts := 0, 0, 0, 0, 0
	for _, name := range names {
		operations := []*operation{}
		for _, o := range partitions[name] {
			all++
			if o.Answer == unknown {
				open++
			}
			// Such a step must not show in any other answer, so it has no place in the order.
			if o.Answer != notApplied {
				operations = append(operations, o)
			}
			if _, holds := step(state{slot: o.shownSlot()}, o); o.Answer == refused && o.Slot != nil && holds {
				fmt.Printf("%s: refused by a state in which it holds\n    %v\n", name, o)
				status = max(status, 1)
			}
		}
		steps, err := adoptions(operations, failOvers)
		if err != nil {
			fmt.Printf("%s: %v\n", name, err)
			status = max(status, 1)
		}
		operations = append(operations, steps...)
		adopts += len(steps)
		sort.SliceStable(operations, func(i, j int) bool { return operations[i].From < operations[j].From })
		ended += endOpenCalls(operations)
		operations = reduce(operations)
		checked += len(operations)
		history := make([]porcupine.Operation, len(operations))
		for i, o := range operations {
			history[i] = porcupine.Operation{ClientId: o.Client, Input: o, Call: o.From, Return: *o.To}
		}
		result, info := porcupine.CheckOperationsVerbose(model, history, *timeout)
		switch result {
		case porcupine.Illegal:
			fmt.Printf("%s: NOT LINEARIZABLE\n", name)
			explain(info, operations)
			status = 1
		case porcupine.Unknown:
			fmt.Printf("%s: undecided after %v\n", name, *timeout)
			if status == 0 {
				status = 2
			}
		}
	}
	if len(failOvers) > 0 {
		fmt.Printf("%d fail-overs, after which %d slots were adopted; ", len(failOvers), adopts)
	}
	verdict := [...]string{"linearizable", "NOT LINEARIZABLE", "undecided"}[status]
	fmt.Printf("%d operations on %d partitions, %d of unknown outcome, %d of these ended by what was seen later; "+
		"%d checked in %.1f s: %s\n", all, len(names), open, ended, checked, time.Since(began).Seconds(), verdict)
	os.Exit(status)
}

func (o *operation) shownSlot() slot {
	if o.Slot == nil {
		return slot{}
	}
	return *o.Slot
}
