(** Lower bound on the reduction work, for every program of the machine.

    Think of every input as a node of its own.  Copies and messages join nothing;
    a reduction joins the inputs of two values, so it lowers the number of
    separate groups by one at most.  In the end all n inputs of a chunk are in one
    group: of n*m groups at most m are left.  So (n-1)m reductions were done, by
    all ranks together, whichever ranks have the results. *)

From Coq Require Import List Arith Lia Bool.
From Algocc Require Import Counting Machine VolumeBounds Ring.
Import ListNotations.

(** Reductions in all, local ones included, each of one chunk. *)
Definition reductions (steps : list (list transfer)) : nat := count reduces (concat steps).

(** [f] names the group of each input; no value mixes groups. *)
Definition coherent (f : input -> input) (s : state) : Prop :=
  forall r l x y, In x (s r l) -> In y (s r l) -> f x = f y.

Definition input_dec (x y : input) : {x = y} + {x <> y}.
Proof. decide equality; apply Nat.eq_dec. Defined.

(** Join group [b] to group [a]. *)
Definition join (a b : input) (f : input -> input) : input -> input :=
  fun x => if input_dec (f x) b then a else f x.

Definition groups (f : input -> input) (xs : list input) : nat :=
  length (nodup input_dec (map f xs)).

Lemma join_groups a b f xs : groups f xs <= groups (join a b f) xs + 1.
Proof.
  unfold groups.
  replace (length (nodup input_dec (map (join a b f) xs)) + 1)
    with (length (b :: nodup input_dec (map (join a b f) xs))) by (cbn; lia).
  apply NoDup_incl_length; [apply NoDup_nodup|].
  intros y Hy. apply nodup_In, in_map_iff in Hy as (x & <- & Hx).
  destruct (input_dec (f x) b) as [->|ne]; [left; reflexivity|right].
  apply nodup_In, in_map_iff. exists x. split; [|assumption].
  unfold join. destruct (input_dec (f x) b); easy.
Qed.

Lemma join_coherent a b f s : coherent f s -> coherent (join a b f) s.
Proof. intros H r l x y Hx Hy. unfold join. rewrite (H r l x y Hx Hy). reflexivity. Qed.

(** [f] is at most [w] joins away from [id], as far as [xs] can tell. *)
Definition joined (xs : list input) (w : nat) (f : input -> input) : Prop :=
  groups (fun x => x) xs <= groups f xs + w.

(** What one transfer does: it keeps the groups, or joins two. *)
Lemma receive_coherent xs old new w f t :
  coherent f old -> coherent f new -> joined xs w f ->
  exists f', joined xs (w + if reduces t then 1 else 0) f' /\
    coherent f' (receive old new t) /\ (forall s, coherent f s -> coherent f' s).
Proof.
  intros Ho Hn Hj. destruct (reduces t) eqn:E.
  - (* join the group of what was there and the group of what came in *)
    set (v := new (dst t) (dst_loc t)). set (w' := old (src t) (src_loc t)).
    destruct v as [|a v'] eqn:Ev; [|destruct w' as [|b w''] eqn:Ew].
    + exists f. split; [unfold joined in *; lia|]. split; [|auto].
      intros r l x y. unfold receive, write. rewrite E. fold v. rewrite Ev. fold w'. cbn [app].
      destruct (_ && _); [apply Ho|apply Hn].
    + exists f. split; [unfold joined in *; lia|]. split; [|auto].
      intros r l x y. unfold receive, write. rewrite E. fold v w'. rewrite Ew, app_nil_r.
      destruct (_ && _); apply Hn.
    + exists (join (f a) (f b) f). split; [|split].
      * unfold joined in *. pose proof (join_groups (f a) (f b) f xs). lia.
      * intros r l x y. unfold receive, write. rewrite E. fold v w'.
        destruct (_ && _); [|apply join_coherent, Hn].
        assert (One : forall z, In z (v ++ w') -> join (f a) (f b) f z = f a).
        { intros z Hz. unfold join. destruct (input_dec (f z) (f b)) as [|ne]; [reflexivity|].
          apply in_app_or in Hz as [Hz|Hz].
          - apply (Hn (dst t) (dst_loc t)); [exact Hz|]. fold v. rewrite Ev. left; reflexivity.
          - exfalso. apply ne, (Ho (src t) (src_loc t)); [exact Hz|].
            fold w'. rewrite Ew. left; reflexivity. }
        intros Hx Hy. rewrite (One x Hx), (One y Hy). reflexivity.
      * intros s. apply join_coherent.
  - exists f. split; [unfold joined in *; lia|]. split; [|auto].
    intros r l x y. unfold receive, write. rewrite E.
    destruct (_ && _); [apply Ho|apply Hn].
Qed.

Lemma step_coherent xs s ts w f :
  coherent f s -> joined xs w f ->
  exists f', joined xs (w + count reduces ts) f' /\ coherent f' (step s ts).
Proof.
  intros Hs Hj. unfold step.
  assert (G : forall ts new w f, coherent f s -> coherent f new -> joined xs w f ->
            exists f', joined xs (w + count reduces ts) f' /\
                       coherent f' (fold_left (receive s) ts new)).
  { clear. induction ts as [|t ts IH]; intros new w f Ho Hn Hj.
    - exists f. rewrite count_nil, Nat.add_0_r. auto.
    - destruct (receive_coherent xs s new w f t Ho Hn Hj) as (f1 & Hj1 & Hc1 & keep).
      destruct (IH (receive s new t) _ f1 (keep s Ho) Hc1 Hj1) as (f2 & Hj2 & Hc2).
      exists f2. rewrite count_cons, Nat.add_assoc. auto. }
  apply G with f; assumption.
Qed.

Lemma run_coherent xs steps : forall s w f,
  coherent f s -> joined xs w f ->
  exists f', joined xs (w + reductions steps) f' /\ coherent f' (run s steps).
Proof.
  unfold reductions. induction steps as [|ts steps IH]; intros s w f Hs Hj.
  - exists f. cbn [concat]. rewrite count_nil, Nat.add_0_r. auto.
  - destruct (step_coherent xs s ts w f Hs Hj) as (f1 & Hj1 & Hc1).
    destruct (IH (step s ts) _ f1 Hc1 Hj1) as (f2 & Hj2 & Hc2).
    exists f2. cbn [concat]. rewrite count_app, Nat.add_assoc. auto.
Qed.

(** Nothing is reduced at the start: a location holds at most one input. *)
Definition unreduced (s : state) : Prop := forall r l, length (s r l) <= 1.

(** If each of m chunks ends reduced over n ranks at some rank, at least (n-1)m
    reductions of a chunk were done (Reduce, ReduceScatter, AllReduce). *)
Theorem reduction_work n m s steps :
  unreduced s ->
  (forall c, c < m -> exists r, holds_reduced n (run s steps) r c) ->
  (n - 1) * m <= reductions steps.
Proof.
  intros Hu H. set (xs := list_prod (seq 0 n) (seq 0 m)).
  assert (Hid : coherent (fun x => x) s).
  { intros r l x y Hx Hy. specialize (Hu r l).
    destruct (s r l) as [|a [|b v]]; cbn in *; [easy| |lia].
    destruct Hx as [<-|[]], Hy as [<-|[]]. reflexivity. }
  destruct (run_coherent xs steps s 0 (fun x => x) Hid) as (f & Hj & Hc).
  { unfold joined. lia. }
  unfold joined in Hj. cbn [Nat.add] in Hj.
  assert (All : groups (fun x => x) xs = n * m).
  { unfold groups. rewrite map_id, nodup_fixed_point.
    - etransitivity; [apply prod_length|]. rewrite !seq_length. reflexivity.
    - apply NoDup_pairs; apply seq_NoDup. }
  assert (Few : groups f xs <= m).
  { apply Nat.le_trans with (length (map (fun c => f (0, c)) (seq 0 m)));
      [|rewrite map_length, seq_length; auto].
    apply NoDup_incl_length; [apply NoDup_nodup|].
    intros y Hy. apply nodup_In, in_map_iff in Hy as ([i c] & <- & Hx).
    apply in_prod_iff in Hx as [Hi Hm]. apply in_seq in Hi. apply in_map_iff. exists c.
    split; [|assumption]. apply in_seq in Hm.
    destruct (H c) as (r & l & _ & Hall); [lia|].
    apply (Hc r l); apply Hall; [exists 0|exists i]; split; auto; lia. }
  nia.
Qed.

(** The ring does just that much: (n-1)n reductions for n chunks. *)
Theorem ring_work n :
  reductions (ring_reduce_scatter n) = (n - 1) * n /\
  reductions (ring_all_reduce n) = (n - 1) * n.
Proof.
  assert (E : forall f red, count reduces (pass_on n f red) = if red then n else 0).
  { intros f red. unfold pass_on. rewrite count_map. cbn.
    destruct red; [rewrite count_all, seq_length|rewrite count_none]; auto. }
  assert (R : reductions (ring_reduce_scatter n) = (n - 1) * n).
  { unfold reductions. rewrite (count_concat reduces _ n).
    - unfold ring_reduce_scatter. rewrite map_length, seq_length. reflexivity.
    - intros l Hl. apply in_map_iff in Hl as (t & <- & _). apply (E _ true). }
  split; [exact R|]. unfold ring_all_reduce, reductions in *.
  rewrite concat_app, count_app, R, (count_concat reduces (ring_all_gather n) 0); [lia|].
  intros l Hl. apply in_map_iff in Hl as (t & <- & _). apply (E _ false).
Qed.

Print Assumptions reduction_work.
Print Assumptions ring_work.
