// A worker that fences its writes: vvm run --storage URL --name payroll -- ./payroll
//
// DATABASE_URL names the database, which has the tables of schema.sql.
package main

import (
	"database/sql"
	"fmt"
	"log"
	"os"
	"strconv"
	"time"

	_ "github.com/lib/pq"
)

// Changes no row if a larger epoch has written. The row stays locked until the end of the transaction.
const fence = `
	INSERT INTO fence (resource, epoch) VALUES ($1, $2)
	ON CONFLICT (resource) DO UPDATE SET epoch = excluded.epoch WHERE fence.epoch <= excluded.epoch`

// pay writes in a transaction that begins with the fence. If it fails, nothing is written, unless the commit
// itself has failed: then the outcome is unknown.
func pay(database *sql.DB, resource string, epoch int64) error {
	transaction, err := database.Begin()
	if err != nil {
		return err
	}
	// Does nothing after a commit.
	defer transaction.Rollback()
	fenced, err := transaction.Exec(fence, resource, epoch)
	if err != nil {
		return err
	}
	rows, err := fenced.RowsAffected()
	if err != nil {
		return err
	}
	if rows == 0 {
		return fmt.Errorf("epoch %d of %s has ended: a later leader has written", epoch, resource)
	}
	if _, err := transaction.Exec("INSERT INTO payment (resource, epoch) VALUES ($1, $2)", resource, epoch); err != nil {
		return err
	}
	return transaction.Commit()
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("worker: ")
	// Each slot has a leader and epochs of its own.
	resource := os.Getenv("VVM_LEADER_NAME") + "/" + os.Getenv("VVM_LEADER_SLOT")
	epoch, err := strconv.ParseInt(os.Getenv("VVM_LEADER_EPOCH"), 10, 64)
	if err != nil {
		log.Fatalf("VVM_LEADER_EPOCH: %v", err)
	}
	database, err := sql.Open("postgres", os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	for {
		if err := pay(database, resource, epoch); err != nil {
			log.Fatal(err)
		}
		fmt.Printf("paid under epoch %d\n", epoch)
		time.Sleep(time.Second)
	}
}
