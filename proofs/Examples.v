(** The definitions at work on small cases, computed by Coq itself.  They show that
    the models do run, and that hypotheses of the theorems can be met. *)

From Coq Require Import List Arith Lia Bool.
From Algocc Require Import Confluence Counters Machine Ring.
Import ListNotations.

(** Three ranks, after ring AllReduce: chunk 1 of rank 0 holds all three. *)
Example ring_of_three :
  run own_inputs (ring_all_reduce 3) 0 1 = [(0, 1); (2, 1); (1, 1)].
Proof. reflexivity. Qed.

(** After ReduceScatter alone, rank 0 is done with chunk 1 and no other. *)
Example ring_of_three_scattered :
  map (run own_inputs (ring_reduce_scatter 3) 0) [0; 1; 2] =
    [[(0, 0)]; [(0, 1); (2, 1); (1, 1)]; [(0, 2); (2, 2)]].
Proof. reflexivity. Qed.

Example ring_of_three_messages :
  messages (ring_all_reduce 3) = 2 * (3 - 1) * 3 /\ length (ring_all_reduce 3) = 4.
Proof. split; reflexivity. Qed.

(** One rank has nothing to do. *)
Example ring_of_one : ring_all_reduce 1 = [].
Proof. reflexivity. Qed.

(** A simultaneous exchange in one step: both read the state before the step. *)
Example exchange :
  let s := step own_inputs [Transfer 0 0 1 0 true; Transfer 1 0 0 0 true] in
  (s 0 0, s 1 0) = ([(0, 0); (1, 0)], [(1, 0); (0, 0)]).
Proof. reflexivity. Qed.

(** Adding a neighbour twice is seen: values are exact multisets. *)
Example counted_twice :
  run own_inputs [[Transfer 1 0 0 0 true]; [Transfer 1 0 0 0 true]] 0 0 =
    [(0, 0); (1, 0); (1, 0)].
Proof. reflexivity. Qed.

(** ** A producer and a consumer

    Event 0 writes location 0 and signals counter 0; event 1, in another lane,
    waits for it and copies location 0 to location 1. *)

Definition reads (e : nat) : list nat := if e =? 1 then [0] else [].
Definition writes (e : nat) : list nat := [e].
Definition effect (e : nat) (seen : list nat) (_ : nat) : nat :=
  match seen with v :: _ => v | [] => 7 end.

Definition no_lanes (_ _ : nat) : Prop := False.
Definition waits (e : nat) : list (nat * nat) := if e =? 1 then [(0, 1)] else [].
Definition signals (e _ : nat) : nat := if e =? 0 then 1 else 0.

Definition ordered : nat -> nat -> Prop := hb Nat.eq_dec [0; 1] no_lanes waits signals.

Example producer_first : ordered 0 1.
Proof. apply hb_wait with (c := 0) (v := 1) (after_s := []) (after_e := []); cbn; auto; easy. Qed.

Example producer_consumer_race_free : race_free reads writes ordered [0; 1].
Proof.
  intros e f [<-|[<-|[]]] [<-|[<-|[]]] ne _; try easy; [left|right]; exact producer_first.
Qed.

(** Without the order, the two executions differ: the check is not idle. *)
Example race_matters :
  execute Nat.eq_dec reads writes effect (fun _ => 0) [0; 1] 1 = 7 /\
  execute Nat.eq_dec reads writes effect (fun _ => 0) [1; 0] 1 = 0.
Proof. split; reflexivity. Qed.
